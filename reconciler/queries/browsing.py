"""Browses recorded resources, a level and a page at a time: GVCs, what is in one, and what matches a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.model.key import GVC_SCOPED, Kind
from reconciler.model.record import Health
from reconciler.queries.resources import ListedResource, list_keys, read_tags
from reconciler.records.store import Records
from reconciler.settings import Settings

MOST_EXAMINED = 2_000
"""The most resources that one page looks at: a search that matches few has more pages, some of them empty."""
_BATCH = 100


class ResourceFilter(NamedTuple):
    """What is browsed: "" and none stand for any; ``text`` is a part of the key, ``accepts`` decides by the tags."""

    kind: Kind | None = None
    gvc: str = ""
    healths: frozenset[Health] = frozenset()
    text: str = ""
    accepts: Callable[[Mapping[str, Any]], bool] | None = None


class ResourcePage(NamedTuple):
    """Resources in order of their keys; ``following`` is the key after which the next page begins, "" at the end."""

    rows: list[ListedResource]
    following: str


class KindCount(NamedTuple):
    """How many resources of a kind there are, and how many of them are not well."""

    kind: Kind
    total: int
    unwell: int


def count_kinds(records: Records) -> list[KindCount]:
    """The number of resources of each kind that has some."""
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


def browse_resources(
    settings: Settings,
    records: Records,
    chosen: ResourceFilter,
    sees: Callable[[ListedResource], bool],
    page: tuple[str, int],
) -> ResourcePage:
    """The resources that are ``chosen`` and that the caller ``sees``.

    ``page`` is the key after which it begins and the most rows.
    """
    after, limit = page
    accepts = chosen.accepts
    rows: list[ListedResource] = []
    examined = 0
    for batch in _list_batches(records, chosen, after):
        for row in list_keys(settings, records, batch):
            if len(rows) == limit:
                return ResourcePage(rows, after)
            if sees(row) and (accepts is None or accepts(read_tags(row.facts.records))):
                rows.append(row)
            after = str(row.facts.key)
        examined += len(batch)
        if examined >= MOST_EXAMINED:
            return ResourcePage(rows, after)
    return ResourcePage(rows, "")


def _list_batches(records: Records, chosen: ResourceFilter, after: str) -> Iterator[list[str]]:
    for prefix in _list_prefixes(chosen):
        while keys := records.applied.search_keys(prefix, chosen.text, chosen.healths, after, _BATCH):
            yield keys
            after = keys[-1]


def _list_prefixes(chosen: ResourceFilter) -> list[str]:
    """The beginnings of the keys that are chosen, in order."""
    if not chosen.gvc:
        return [f"{chosen.kind}/" if chosen.kind is not None else ""]
    kinds = [kind for kind in sorted(GVC_SCOPED) if chosen.kind in (None, kind)]
    return [f"{kind}/{chosen.gvc}/" for kind in kinds]
