"""The decision on access: what policies, groups and built-in grants permit (docs/platform/fields.md#policy).

Everything here is pure: a value compiled from the applied resources answers every question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from reconciler.manifests.links import parse_link
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.group import Group
from reconciler.model.kinds.policy import Policy
from reconciler.model.kinds.table import MANAGE, TABLE, expand_permissions
from reconciler.model.query_match import matches_query

Body = Mapping[str, Any]

SUPERUSERS = Key(Kind.GROUP, "", "superusers")
VIEWERS = Key(Kind.GROUP, "", "viewers")
BUILT_IN_GRANTS = {SUPERUSERS: MANAGE, VIEWERS: "view"}
"""Built-in group → the permission that it has on every resource."""
APPROVE = "approve"
"""A permission on the org: approve plans."""


class Caller(msgspec.Struct, frozen=True):
    """A principal, as a key (``user/a@example.com``), with the groups that its credential names, as keys too.

    ``credential`` describes the credential for the audit log, without its secret. ``user`` has the fields of a user
    that no manifest declares, for the queries of groups. ``workload`` is the key of the workload that calls, or "".
    ``reader``: the kernel let it connect to the unix socket, as one of the group in the setting `readers`.
    """

    principal: str
    groups: frozenset[str] = frozenset()
    credential: str = ""
    user: Body | None = None
    workload: str = ""
    reader: bool = False


class Grant(msgspec.Struct, frozen=True, gc=False):
    """One binding of a policy: ``permissions`` as it names them, ``closure`` with all that they imply.

    Its targets are ``everything`` of the kind, ``keys``, or what ``query`` selects.
    """

    policy: Key
    kind: Kind
    principals: tuple[str, ...]
    permissions: tuple[str, ...]
    closure: frozenset[str]
    everything: bool = False
    keys: frozenset[str] = frozenset()
    query: Body | None = None
    org: str = ""

    def includes(self, key: Key, read_body: Callable[[], Body]) -> bool:
        """Whether the resource ``key`` is a target; its body is read only for a query, which sees no secret data.

        A query selects no resource without a body: a query for a missing tag must not show which ones exist.
        """
        if self.everything or str(key) in self.keys:
            return True
        return self.query is not None and self.selects(read_body())

    def selects(self, body: Body) -> bool:
        """Whether the query, if there is one, selects the resource with ``body``."""
        return self.query is not None and bool(body) and matches_query(self.query, {**body, "data": None}, self.org)


class Visibility(NamedTuple):
    """The resources of a kind that a caller has a permission for."""

    everything: bool
    keys: frozenset[str]
    grants: tuple[Grant, ...]

    def includes(self, key: Key, read_body: Callable[[], Body]) -> bool:
        """Whether ``key`` is one of them."""
        if self.everything or str(key) in self.keys:
            return True
        return any(grant.includes(key, read_body) for grant in self.grants)


class AccessEntry(NamedTuple):
    """A line of an access report: ``principal`` has ``permission`` by the ``granted`` permissions of ``policy``."""

    permission: str
    principal: str
    policy: Key
    granted: tuple[str, ...]


class AccessRules:
    """All grants, by principal and kind, and the members of all groups."""

    def __init__(
        self, grants: Iterable[Grant], groups: Mapping[Key, Group], users: Mapping[str, Body], org: str
    ) -> None:
        self._grants: defaultdict[tuple[str, Kind], list[Grant]] = defaultdict(list)
        self._by_kind: defaultdict[Kind, list[Grant]] = defaultdict(list)
        for grant in grants:
            self._by_kind[grant.kind].append(grant)
            for principal in grant.principals:
                self._grants[principal, grant.kind].append(grant)
        self._granted = frozenset(principal for principal, _ in self._grants)
        self._groups: defaultdict[str, set[str]] = defaultdict(set)
        self._queries: list[tuple[str, Body]] = []
        for key, group in groups.items():
            for link in group.member_links:
                self._groups[parse_link(link, org, "").target].add(str(key))
            if group.member_query is not None:
                self._queries.append((str(key), msgspec.to_builtins(group.member_query)))
        self._users = users
        self._org = org

    def principals(self, caller: Caller) -> frozenset[str]:
        """The caller and every group that it is a member of: by links, by queries for users, by its credential."""
        user = self._users.get(caller.principal, caller.user)
        texts = [group for group, query in self._queries if user is not None and matches_query(query, user, self._org)]
        return frozenset((caller.principal, *caller.groups, *self._groups.get(caller.principal, ()), *texts))

    def granted_principals(self, caller: Caller) -> frozenset[str]:
        """Those of ``principals`` that any grant names: callers with the same ones have the same permissions."""
        return self.principals(caller) & self._granted

    def may(self, caller: Caller, permission: str, key: Key, read_body: Callable[[], Body]) -> bool:
        """Whether ``caller`` has ``permission`` on the resource ``key``, existing or to be created."""
        return any(grant.includes(key, read_body) for grant in self.granting(caller, permission, key.kind))

    def visibility(self, caller: Caller, kind: Kind, permission: str = "view") -> Visibility:
        """The resources of ``kind`` that ``caller`` has ``permission`` for."""
        grants = list(self.granting(caller, permission, kind))
        queries = tuple(grant for grant in grants if grant.query is not None)
        named = frozenset[str]().union(*(grant.keys for grant in grants))
        return Visibility(any(grant.everything for grant in grants), named, queries)

    def grants_of(self, principal: str) -> Iterator[Grant]:
        """The grants that name ``principal``, of every kind."""
        for kind in Kind:
            yield from self._grants.get((principal, kind), ())

    def grants_on(self, kind: Kind) -> Sequence[Grant]:
        """The grants about resources of ``kind``."""
        return self._by_kind.get(kind, ())

    def group_queries(self) -> Iterator[tuple[Key, Body]]:
        """The groups that find members by a query, each with its query."""
        return ((Key.parse(group), query) for group, query in self._queries)

    def report(self, key: Key, read_body: Callable[[], Body]) -> Iterator[AccessEntry]:
        """Who has which permission on ``key``, in order of permission, principal and policy."""
        entries = []
        for grant in self._by_kind[key.kind]:
            if not grant.includes(key, read_body):
                continue
            for permission in sorted(grant.closure & TABLE[key.kind].permissions.keys()):
                granted = tuple(
                    text for text in grant.permissions if permission in expand_permissions(key.kind, (text,))
                )
                entries += [AccessEntry(permission, principal, grant.policy, granted) for principal in grant.principals]
        return iter(sorted(entries))

    def granting(self, caller: Caller, permission: str, kind: Kind) -> Iterator[Grant]:
        """The grants that give ``caller`` ``permission`` on resources of ``kind``."""
        for principal in self.principals(caller):
            for grant in self._grants.get((principal, kind), ()):
                if permission in grant.closure:
                    yield grant


def built_in_grants() -> Iterator[Grant]:
    """The policies that exist without a manifest: superusers manage, and viewers view, every resource."""
    for group, permission in BUILT_IN_GRANTS.items():
        for kind in Kind:
            policy = Key(Kind.POLICY, "", f"{group.name}-{kind}")
            closure = expand_permissions(kind, (permission,))
            yield Grant(policy, kind, (str(group),), (permission,), closure, everything=True)


def policy_grants(key: Key, body: Body, org: str) -> Iterator[Grant]:
    """The grants of the policy ``key`` with the normal form ``body``, one for each binding."""
    policy = msgspec.convert(body, Policy)
    kind = Kind(policy.target_kind)
    keys = frozenset(parse_link(link, org, "").target for link in policy.target_links)
    for binding in policy.bindings:
        yield Grant(
            key,
            kind,
            tuple(sorted(parse_link(link, org, "").target for link in binding.principal_links)),
            binding.permissions,
            expand_permissions(kind, binding.permissions),
            everything=policy.target == "all",
            keys=keys,
            query=body.get("targetQuery"),
            org=org,
        )
