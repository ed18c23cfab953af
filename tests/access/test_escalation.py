"""Nobody grants permissions that they do not have: by a policy, by a member of a group, or by a tag."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.access.escalation import EscalationCheck, MissingGrant
from reconciler.access.rules import AccessRules, Caller, built_in_grants, policy_grants
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.group import Group

ORG = "acme"
ANN = "user/ann@example.com"
ANN_LINK = "/org/acme/user/ann@example.com"
POLICY = Key(Kind.POLICY, "", "new")
GROUP = Key(Kind.GROUP, "", "ops")
SECRETS = {"secret/db": {"kind": "secret", "name": "db", "tags": {"team": "web"}}}
QUERY = {"kind": "secret", "spec": {"match": "all", "terms": [{"tag": "team", "op": "=", "value": "web"}]}}


def policy(target: dict[str, Any], *bindings: tuple[list[str], list[str]], kind: str = "secret") -> dict[str, Any]:
    bound = [{"permissions": may, "principalLinks": who} for may, who in bindings]
    return {"kind": "policy", "name": "new", "targetKind": kind, **target, "bindings": bound}


def rules(*policies: dict[str, Any], groups: dict[Key, Any] | None = None) -> AccessRules:
    grants = [*built_in_grants()]
    for number, body in enumerate(policies):
        grants += policy_grants(Key(Kind.POLICY, "", f"p{number}"), body, ORG)
    members = {key: msgspec.convert(body, Group) for key, body in (groups or {}).items()}
    return AccessRules(grants, members, {}, ORG)


def missing(access: AccessRules, key: Key, was: dict[str, Any], wanted: dict[str, Any]) -> MissingGrant | None:
    return EscalationCheck(access, Caller(ANN), ORG, lambda key: SECRETS.get(str(key), {})).missing(key, was, wanted)


ALL: dict[str, Any] = {"target": "all"}
DB: dict[str, Any] = {"targetLinks": ["/org/acme/secret/db"]}
BY_QUERY: dict[str, Any] = {"targetQuery": QUERY}


@pytest.mark.parametrize(
    ("own", "granted", "expected"),
    [
        ((ALL, "view"), (ALL, "manage"), "create"),
        ((ALL, "view"), (DB, "reveal"), "reveal"),
        ((DB, "reveal"), (ALL, "reveal"), "reveal"),
        ((DB, "reveal"), (DB, "reveal"), None),
        ((ALL, "edit"), (DB, "reveal"), None),
        ((BY_QUERY, "reveal"), (DB, "reveal"), None),
        ((BY_QUERY, "reveal"), (BY_QUERY, "reveal"), None),
        ((DB, "reveal"), (BY_QUERY, "reveal"), "reveal"),
        ((ALL, "reveal"), (BY_QUERY, "reveal"), None),
        ((ALL, "manage"), (ALL, "manage"), None),
    ],
)
def test_a_policy_grants_only_what_its_author_has(
    own: tuple[dict[str, Any], str], granted: tuple[dict[str, Any], str], expected: str | None
) -> None:
    access = rules(policy(own[0], ([own[1]], [ANN_LINK])))
    for who in (ANN_LINK, "/org/acme/group/ops", "/org/acme/gvc/shop/identity/web"):
        found = missing(access, POLICY, {}, policy(granted[0], ([granted[1]], [who])))
        assert (found and found.permission) == expected


def test_who_manages_all_policies_may_grant_anything() -> None:
    changed = policy(ALL, (["manage"], [ANN_LINK]))
    everything, one = ({**ALL}, {"targetLinks": ["/org/acme/policy/new"]})
    assert missing(rules(policy(everything, (["manage"], [ANN_LINK]), kind="policy")), POLICY, {}, changed) is None
    for may, target in ((["manage"], one), (["create", "edit", "delete"], everything)):
        assert missing(rules(policy(target, (may, [ANN_LINK]), kind="policy")), POLICY, {}, changed) is not None


def test_of_an_edit_only_what_is_new_counts() -> None:
    bob = "/org/acme/user/bob@example.com"
    was = policy(DB, (["manage"], [bob]))
    two = {"targetLinks": ["/org/acme/secret/db", "/org/acme/secret/other"]}
    access = rules()
    for changed, is_refused in (
        (was, False),
        ({**was, "description": "new"}, False),
        (policy(DB, (["view"], [bob])), False),
        (policy(DB, (["manage"], [])), False),
        (policy(DB, (["manage"], [bob, ANN_LINK])), True),
        (policy(DB, (["manage"], [bob]), (["view"], [ANN_LINK])), True),
        (policy(two, (["manage"], [bob])), True),
        (policy(ALL, (["manage"], [bob])), True),
        (policy(BY_QUERY, (["manage"], [bob])), True),
        (policy(DB, (["manage"], [bob]), kind="gvc"), True),
    ):
        assert (missing(access, POLICY, was, changed) is not None) is is_refused, changed


def test_a_large_policy_is_compared_in_linear_time() -> None:
    who = [f"/org/acme/user/u{number}@example.com" for number in range(200)]
    links = {"targetLinks": [f"/org/acme/secret/s{number}" for number in range(200)]}
    bindings = [(["manage"], who)] * 50
    was = policy(links, *bindings)
    # As a product of principals, permissions and targets, these would be twelve million comparisons.
    assert missing(rules(), POLICY, was, {**was, "description": "new"}) is None


def group(*members: str, query: Any = None) -> dict[str, Any]:
    return {"kind": "group", "name": "ops", "memberLinks": list(members)} | ({"memberQuery": query} if query else {})


MEMBERS = {"kind": "user", "spec": {"match": "all", "terms": [{"tag": "team", "op": "=", "value": "ops"}]}}


def test_a_new_member_gets_nothing_that_the_author_lacks() -> None:
    powers = policy(ALL, (["reveal"], ["/org/acme/group/ops"]))
    bob = "/org/acme/user/bob@example.com"
    for own, is_refused in ((["view"], True), (["reveal"], False)):
        access = rules(powers, policy(ALL, (own, [ANN_LINK])))
        for was, changed in (
            (group(), group(ANN_LINK)),
            (group(bob), group(bob, ANN_LINK)),
            (group(), group(query=MEMBERS)),
            ({}, group(bob)),
        ):
            assert (missing(access, GROUP, was, changed) is not None) is is_refused
        for was, changed in ((group(bob), group(bob)), (group(bob, ANN_LINK), group(bob)), (group(bob), {})):
            assert missing(access, GROUP, was, changed) is None


def test_superusers_get_members_by_those_who_manage_all_groups_or_everything() -> None:
    superusers = Key(Kind.GROUP, "", "superusers")
    changed = {"kind": "group", "name": "superusers", "memberLinks": [ANN_LINK]}
    assert missing(rules(policy(ALL, (["edit"], [ANN_LINK]), kind="group")), superusers, {}, changed) is not None
    assert missing(rules(policy(ALL, (["manage"], [ANN_LINK]), kind="group")), superusers, {}, changed) is None
    member = rules(groups={superusers: changed})
    assert (
        missing(member, superusers, {}, {**changed, "memberLinks": [ANN_LINK, "/org/acme/user/b@example.com"]}) is None
    )


def test_a_tag_of_a_user_does_not_make_them_a_member_of_more_than_the_author_has() -> None:
    powers = policy(ALL, (["reveal"], ["/org/acme/group/ops"]))
    access = rules(powers, groups={GROUP: group(query=MEMBERS)})
    user = Key(Kind.USER, "", "ann@example.com")
    was: dict[str, Any] = {"kind": "user", "name": "ann@example.com", "tags": {}}
    assert missing(access, user, was, {**was, "tags": {"team": "ops"}}) is not None
    assert missing(access, user, {}, {**was, "tags": {"team": "ops"}}) is not None
    assert missing(access, user, was, {**was, "tags": {"team": "other"}}) is None


def test_a_tag_of_a_resource_gives_others_nothing_that_the_author_lacks() -> None:
    key, was = Key(Kind.SECRET, "", "new"), {"kind": "secret", "name": "new", "tags": {}}
    changed = {**was, "tags": {"team": "web"}}
    by_query = policy(BY_QUERY, (["manage"], [ANN_LINK]))
    edits = policy({"targetLinks": ["/org/acme/secret/new"]}, (["edit"], [ANN_LINK]))
    found = missing(rules(by_query, edits), key, was, changed)
    assert found is not None
    assert found.target == "secret/new"
    # Who creates a resource gives it what the policies mean for it.
    assert missing(rules(by_query), key, {}, changed) is None
    assert missing(rules(policy(BY_QUERY, (["view"], ["/org/acme/group/ops"])), edits), key, was, changed) is None
