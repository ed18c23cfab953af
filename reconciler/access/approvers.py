"""Who may approve what waits: by policies of the org, and on the host itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from reconciler.access.rules import APPROVE, SUPERUSERS, Grant, built_in_grants, policy_grants
from reconciler.model.key import Key, Kind
from reconciler.records.store import Records
from reconciler.settings import Settings

MOST_NAMED = 3
"""The most groups that are named."""
_ABOUT_ORG = f'"{Kind.ORG}"'.encode()


class Approvers(NamedTuple):
    """Who may approve the plans of an org, beside operators of the host.

    ``groups`` are their names in order, the superusers last; ``people`` and ``programs`` count the others that policies
    name. Nobody is named: names of users are addresses, and who reads this is not known. Members of a group are not
    counted: an identity provider may name others when they log in. With ``four_eyes``, no author of the change may.
    """

    groups: tuple[str, ...]
    people: int = 0
    programs: int = 0
    four_eyes: bool = False


def read_approvers(records: Records, settings: Settings) -> Approvers:
    """Who may approve plans by the applied policies; without an API, only operators of the host. Raises RecordsError.

    It reads every policy: call it where something waits, and not for each run.
    """
    org = Key(Kind.ORG, "", settings.org)
    names: set[str] = set()
    if settings.api is not None:
        for grant in _list_grants(records, settings.org):
            if APPROVE in grant.closure and grant.includes(org, lambda: _read_body(records, org)):
                names.update(grant.principals)
    # Nobody of another org can log in here.
    keys = [Key.parse(name) for name in names if not name.startswith("/")]
    groups = sorted((key == SUPERUSERS, key.name) for key in keys if key.kind is Kind.GROUP)
    people = sum(key.kind is Kind.USER for key in keys)
    named = tuple(name for _, name in groups)
    return Approvers(named, people, len(keys) - len(named) - people, settings.approval_four_eyes)


def describe_approvers(approvers: Approvers, quote: Callable[[str], str] = str) -> str:
    """``the groups ops and superusers, 2 other people, or an operator of the host``; ``quote`` is for names."""
    named = [quote(name) for name in approvers.groups[:MOST_NAMED]]
    more = len(approvers.groups) - len(named)
    groups = [*named, f"{more} {'others' if more > 1 else 'other'}"] if more else named
    others = "other " if groups else ""
    parts = [f"the group{'s' if len(groups) > 1 else ''} {_join_words(groups)}"] if groups else []
    if approvers.people:
        parts.append(f"{approvers.people} {others}{'people' if approvers.people > 1 else 'person'}")
    if approvers.programs:
        parts.append(f"{approvers.programs} program{'s' if approvers.programs > 1 else ''}")
    host = f"{', '.join(parts)}, or an operator of the host" if parts else "an operator of the host"
    return f"{host}, but no author of the change" if approvers.four_eyes else host


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _list_grants(records: Records, org: str) -> Iterator[Grant]:
    """The grants about the org, those of superusers and viewers included."""
    about = (record for record in records.applied.items(Kind.POLICY) if _ABOUT_ORG in record.body)
    grants = (policy_grants(record.key, msgspec.json.decode(record.body), org) for record in about)
    return (grant for grant in chain(built_in_grants(), *grants) if grant.kind is Kind.ORG)


def _read_body(records: Records, key: Key) -> Mapping[str, Any]:
    found = records.applied.get(key)
    body: Mapping[str, Any] = msgspec.json.decode(found[0].body) if found else {}
    return body
