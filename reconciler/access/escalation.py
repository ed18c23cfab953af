"""The decision on escalation: nobody grants permissions that they do not have themselves.

A change grants by a policy, by a member of a group, by a tag that the query of a policy or group asks for, or by the
address with which a person logs in as a user. Whoever has `manage` on every policy (or group) may grant anything, as
`escalate` and `bind` in Kubernetes let them (docs/platform/fields.md#policy). Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from reconciler.access.references import ReadBody
from reconciler.access.rules import AccessRules, Body, Caller, Grant, policy_grants
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.table import MANAGE
from reconciler.model.query_match import matches_query


class MissingGrant(NamedTuple):
    """A permission that the change grants and the caller lacks; ``target`` says on what, in words."""

    permission: str
    target: str


class EscalationCheck:
    """Decides on what the changes of one request by ``caller`` grant."""

    def __init__(self, access: AccessRules, caller: Caller, org: str, read_body: ReadBody) -> None:
        self._access = access
        self._caller = caller
        self._org = org
        self._read_body = read_body

    def missing(self, key: Key, was: Body, desired: Body) -> MissingGrant | None:
        """The first permission that the change of ``key`` grants and the caller lacks; None if there is none.

        ``was`` and ``desired`` are in normal form; ``was`` is {} for a new resource, ``desired`` for one to delete.
        """
        if not desired:
            return None
        missing_grant = None
        if key.kind is Kind.POLICY:
            missing_grant = self._by_policy(key, was, desired)
        elif key.kind is Kind.GROUP:
            missing_grant = self._by_group(key, was, desired)
        elif key.kind is Kind.USER:
            missing_grant = self._by_membership(was, desired) or self._by_address(key, was, desired)
        return self._by_selection(key, was, desired) if missing_grant is None and was else missing_grant

    def _by_policy(self, key: Key, was: Body, desired: Body) -> MissingGrant | None:
        if self._manages_all(Kind.POLICY):
            return None
        before = [*policy_grants(key, was, self._org)] if was else []
        return self._first(_list_added_grants(before, [*policy_grants(key, desired, self._org)]))

    def _by_group(self, key: Key, was: Body, desired: Body) -> MissingGrant | None:
        joins = set(desired.get("memberLinks") or ()) - set(was.get("memberLinks") or ())
        query = desired.get("memberQuery")
        if not joins and (query is None or query == was.get("memberQuery")):
            return None
        return self._by_joining(key)

    def _by_membership(self, was: Body, desired: Body) -> MissingGrant | None:
        """What a user gets whom the query of a group did not select before."""
        for group, query in self._access.group_queries():
            if matches_query(query, desired, self._org) and not (was and matches_query(query, was, self._org)):
                missing_grant = self._by_joining(group)
                if missing_grant is not None:
                    return missing_grant
        return None

    def _by_address(self, key: Key, was: Body, desired: Body) -> MissingGrant | None:
        """What the person with a new address gets, who logs in as this user from then on."""
        address = str(desired.get("email") or "").lower()
        if not was or address in ("", str(was.get("email") or "").lower(), key.name.lower()):
            return None
        if self._access.may(self._caller, "impersonate", key, lambda: was):
            return None
        return MissingGrant("impersonate", str(key))

    def _by_joining(self, group: Key) -> MissingGrant | None:
        """What a new member of ``group`` gets."""
        if self._manages_all(Kind.GROUP):
            return None
        return self._first(self._access.grants_of(str(group)))

    def _by_selection(self, key: Key, was: Body, desired: Body) -> MissingGrant | None:
        """What others get on a resource that the query of a policy did not select before."""
        selecting = (
            grant for grant in self._access.grants_on(key.kind) if grant.selects(desired) and not grant.selects(was)
        )
        granted = sorted(frozenset[str]().union(*(grant.closure for grant in selecting)))
        lacking = (text for text in granted if not self._access.may(self._caller, text, key, lambda: was))
        return next((MissingGrant(permission, str(key)) for permission in lacking), None)

    def _manages_all(self, kind: Kind) -> bool:
        return self._access.visibility(self._caller, kind, MANAGE).everything

    def _first(self, grants: Iterable[Grant]) -> MissingGrant | None:
        for grant in grants:
            for permission in sorted(grant.closure):
                target = self._find_ungranted(grant, permission)
                if target:
                    return MissingGrant(permission, target)
        return None

    def _find_ungranted(self, grant: Grant, permission: str) -> str:
        """A target of ``grant`` on which the caller lacks ``permission``, in words; "" if there is none."""

        def body(target: Key) -> Callable[[], Body]:
            return lambda: self._read_body(target)

        if grant.everything or grant.query is not None:
            own = self._access.granting(self._caller, permission, grant.kind)
            is_granted = any(
                own_grant.everything or (own_grant.query is not None and own_grant.query == grant.query)
                for own_grant in own
            )
            return (
                "" if is_granted else f"every {grant.kind}" if grant.everything else f"each {grant.kind} of the query"
            )
        for name in sorted(grant.keys):
            if name.startswith("/"):
                continue  # of another org, where this policy grants nothing
            target = Key.parse(name)
            if not self._access.may(self._caller, permission, target, body(target)):
                return name
        return ""


def _list_added_grants(before: Sequence[Grant], after: Sequence[Grant]) -> Iterator[Grant]:
    """What a policy with the grants ``after`` gives, and with those ``before`` did not: a grant for each permission.

    All grants of a policy have the same targets. A new principal gets a permission on all of them.
    """
    former, latter = _map_principals(before), _map_principals(after)
    for permission in sorted(latter):
        grant = after[0]
        if before and before[0].kind is grant.kind and latter[permission] <= former.get(permission, set()):
            old = before[0]
            if old.everything or (grant.query is not None and grant.query == old.query):
                continue
            if not grant.everything and grant.query is None:
                grant = msgspec.structs.replace(grant, keys=grant.keys - old.keys)
        yield msgspec.structs.replace(grant, closure=frozenset({permission}))


def _map_principals(grants: Iterable[Grant]) -> dict[str, set[str]]:
    """Permission → the principals that get it, directly or since another one implies it."""
    principals: dict[str, set[str]] = {}
    for grant in grants:
        for permission in grant.closure:
            principals.setdefault(permission, set()).update(grant.principals)
    return principals
