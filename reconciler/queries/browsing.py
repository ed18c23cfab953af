"""Browses recorded resources, a level and a page at a time: GVCs, what is in one, and what matches a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.errors import UsageError
from reconciler.model.key import GVC_SCOPED, Kind
from reconciler.model.record import Health
from reconciler.queries.existence import did_you_mean
from reconciler.queries.resources import ListedResource, list_keys, read_tags
from reconciler.records.store import Records
from reconciler.settings import Settings

MOST_EXAMINED = 2_000
"""The most resources that one page looks at: a search that matches few has more pages, some of them empty."""
BATCH = 100
UNWELL = "unwell"
"""The state of what is neither healthy nor only recorded."""
STATES: Mapping[str, frozenset[Health]] = {
    UNWELL: frozenset(health for health in Health if not health.is_good),
    **{health.value.lower(): frozenset({health}) for health in Health},
}
"""State in a search → the healths that it stands for."""


class ResourceFilter(NamedTuple):
    """What is browsed: "" and none stand for any; ``text`` is a part of the key, ``accepts`` decides by the tags."""

    kind: Kind | None = None
    gvc: str = ""
    healths: frozenset[Health] = frozenset()
    text: str = ""
    accepts: Callable[[Mapping[str, Any]], bool] | None = None


def parse_state(text: str) -> frozenset[Health]:
    """The healths that the state ``text`` stands for, in any case of letters; "": any. Raises UsageError."""
    name = text.lower()
    if name and name not in STATES:
        hint = did_you_mean(name[:60], STATES) or f"; the states are {', '.join(STATES)}"
        raise UsageError(f"there is no state {text[:60]!r}{hint}")
    return STATES.get(name, frozenset())


class ResourcePage(NamedTuple):
    """Resources in order of their keys; ``following`` is the key after which the next page begins, "" at the end."""

    rows: list[ListedResource]
    following: str


class KindCount(NamedTuple):
    """How many resources of a kind there are, and how many of them are not well."""

    kind: Kind
    total: int
    unwell: int


def count_kinds(records: Records, gvc: str = "") -> list[KindCount]:
    """The number of resources of each kind that has some, of all ("") or in ``gvc``."""
    if gvc:
        members = records.applied.count_members(gvc).items()
        return [KindCount(kind, total, unwell) for kind, (total, unwell) in members if total]
    counts = records.applied.counts()
    kinds = sorted({kind for kind, _ in counts})
    return [
        KindCount(
            kind,
            sum(number for (other, _), number in counts.items() if other is kind),
            sum(number for (other, health), number in counts.items() if other is kind and not health.is_good),
        )
        for kind in kinds
    ]


ListVisible = Callable[[Kind, str, str], "Sequence[str] | None"]
"""For a kind, a beginning of keys, and a key: the next keys after it that the caller may see, BATCH at most, in order.

None where that is all of the kind.
"""


def browse_resources(
    settings: Settings,
    records: Records,
    chosen: ResourceFilter,
    sees: Callable[[ListedResource], bool],
    list_visible: ListVisible,
    page: tuple[str, int],
) -> ResourcePage:
    """The resources that are ``chosen`` and that the caller ``sees``.

    Of what they cannot see, no more is read than what ``list_visible`` has. ``page`` is the key after which it begins
    and the most rows.
    """
    after, limit = page
    accepts = chosen.accepts
    rows: list[ListedResource] = []
    examined = 0
    for batch in _list_batches(records, chosen, list_visible, after):
        for row in list_keys(settings, records, batch.keys):
            if len(rows) == limit:
                return ResourcePage(rows, after)
            if sees(row) and (accepts is None or accepts(read_tags(row.facts.records))):
                rows.append(row)
            after = str(row.facts.key)
        after = batch.end
        examined += batch.examined
        if examined >= MOST_EXAMINED:
            return ResourcePage(rows, after)
    return ResourcePage(rows, "")


def search_resources(settings: Settings, records: Records, chosen: ResourceFilter) -> Iterator[ListedResource]:
    """All resources that are ``chosen``, in order of their keys; tags are not looked at."""
    for batch in _list_batches(records, chosen, lambda *_: None, ""):
        yield from list_keys(settings, records, batch.keys)


class _Batch(NamedTuple):
    """Keys that are chosen, up to the key ``end``; ``examined`` is how many were looked at for them."""

    keys: list[str]
    end: str
    examined: int


def _list_batches(records: Records, chosen: ResourceFilter, list_visible: ListVisible, after: str) -> Iterator[_Batch]:
    for kind, prefix in _list_prefixes(chosen):
        while (visible := list_visible(kind, prefix, after)) != []:
            if visible is None:
                keys = records.applied.search_keys(prefix, chosen.text, chosen.healths, after, BATCH)
            else:
                keys = records.applied.pick_keys(visible, chosen.text, chosen.healths)
            if visible is None and not keys:
                break
            after = keys[-1] if visible is None else visible[-1]
            yield _Batch(keys, after, len(keys if visible is None else visible))


def _list_prefixes(chosen: ResourceFilter) -> list[tuple[Kind, str]]:
    """The beginnings of the keys that are chosen, in order."""
    kinds = [kind for kind in (GVC_SCOPED if chosen.gvc else Kind) if chosen.kind in (None, kind)]
    gvc = f"{chosen.gvc}/" if chosen.gvc else ""
    return sorted(((kind, f"{kind}/{gvc}") for kind in kinds), key=lambda pair: pair[1])
