"""Who may do what: the decision function equals a naive one for generated policies and groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from reconciler.access.rules import AccessRules, Caller, built_in_grants, policy_grants
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.group import Group
from reconciler.model.kinds.table import TABLE
from reconciler.model.query_match import matches_query

TAGS = ("", "red", "blue")
USERS = {
    f"user/{name}@example.com": {"kind": "user", "name": f"{name}@example.com", "tags": {"team": tag}}
    for name, tag in (("ann", "red"), ("bob", "blue"))
}
PRINCIPALS = (
    *USERS,
    "serviceaccount/ci",
    "identity/shop/web",
    "group/ops",
    "group/red",
    "/org/other/serviceaccount/ci",
    "/org/other/group/ops",
)
TARGETS = {
    Key(kind, gvc, name): {"kind": str(kind), "name": name, "tags": {"team": tag}}
    for kind, gvc in ((Kind.WORKLOAD, "shop"), (Kind.WORKLOAD, "depot"), (Kind.SECRET, ""), (Kind.GVC, ""))
    for name, tag in (("one", "red"), ("two", "blue"))
}
PERMISSIONS = sorted({name for kind in (Kind.WORKLOAD, Kind.SECRET, Kind.GVC) for name in TABLE[kind].permissions})


def link(key: str) -> str:
    """A key as a link of a manifest: ``//gvc/shop/identity/web``; a link to another org stays as it is."""
    if key.startswith("/"):
        return key
    parts = key.split("/")
    return f"//gvc/{parts[1]}/{parts[0]}/{parts[2]}" if len(parts) == 3 else f"//{key}"


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """A policy with one form of targets."""
    kind = draw(st.sampled_from((Kind.WORKLOAD, Kind.SECRET, Kind.GVC)))
    names = [str(key) for key in TARGETS if key.kind is kind]
    targets = draw(st.sampled_from(("all", "links", "query", "none")))
    body: dict[str, Any] = {"kind": "policy", "targetKind": str(kind)}
    if targets == "all":
        body["target"] = "all"
    elif targets == "links":
        body["targetLinks"] = [link(name) for name in draw(st.sets(st.sampled_from(names)))]
    elif targets == "query":
        terms = [{"tag": "team", "value": draw(st.sampled_from(TAGS))}]
        body["targetQuery"] = {"spec": {"match": draw(st.sampled_from(("all", "none"))), "terms": terms}}
    body["bindings"] = [
        {
            "permissions": draw(st.lists(st.sampled_from(sorted(TABLE[kind].permissions)), max_size=2)),
            "principalLinks": [link(each) for each in draw(st.sets(st.sampled_from(PRINCIPALS)))],
        }
        for _ in range(draw(st.integers(0, 2)))
    ]
    return body


def naive(
    policy_list: list[dict[str, Any]], groups: Mapping[str, Any], caller: Caller, permission: str, key: Key
) -> bool:
    """The decision in the words of the reference, without any index."""
    own = {caller.principal, *caller.groups}
    for name, group in groups.items():
        by_link = caller.principal in {value.removeprefix("//") for value in group.get("memberLinks", ())}
        by_query = "memberQuery" in group and matches_query(
            group["memberQuery"], USERS.get(caller.principal, {"tags": {}}), "acme"
        )
        own |= {name} if by_link or (by_query and caller.principal in USERS) else set()
    if "group/superusers" in own or ("group/viewers" in own and permission == "view"):
        return True
    for policy in policy_list:
        on = policy["targetKind"] == key.kind and (
            policy.get("target") == "all"
            or link(str(key)) in policy.get("targetLinks", ())
            or ("targetQuery" in policy and matches_query(policy["targetQuery"], TARGETS[key], "acme"))
        )
        for binding in policy["bindings"] if on else ():
            if own & {naive_key(value) for value in binding["principalLinks"]} and any(
                permission in closure(key.kind, value) for value in binding["permissions"]
            ):
                return True
    return False


def naive_key(text: str) -> str:
    """The inverse of ``link``."""
    if text.startswith("/org/"):
        return text
    parts = text.removeprefix("//").split("/")
    return f"{parts[2]}/{parts[1]}/{parts[3]}" if len(parts) == 4 else "/".join(parts)


def closure(kind: Kind, permission: str) -> set[str]:
    """``permission`` and all that it implies."""
    return {permission}.union(
        *(closure(kind, each) if each != permission else set() for each in TABLE[kind].permissions[permission])
    )


@given(
    st.lists(policies(), max_size=4),
    st.sampled_from([*USERS, "serviceaccount/ci", "identity/shop/web"]),
    st.sets(st.sampled_from(("group/ops", "group/superusers", "group/viewers"))),
    st.sets(st.sampled_from((*USERS, "serviceaccount/ci"))),
)
def test_the_decision_equals_a_naive_one(
    policy_list: list[dict[str, Any]], principal: str, claimed: set[str], members: set[str]
) -> None:
    bodies: dict[str, Any] = {
        "group/ops": {"memberLinks": [f"//{each}" for each in sorted(members)]},
        "group/red": {"memberQuery": {"spec": {"terms": [{"tag": "team", "value": "red"}]}}},
    }
    grants = list(built_in_grants())
    for number, body in enumerate(policy_list):
        grants += policy_grants(Key(Kind.POLICY, "", f"p{number}"), body, "acme")
    groups = {Key.parse(name): msgspec.convert(body, Group) for name, body in bodies.items()}
    rules = AccessRules(grants, groups, USERS, "acme")
    caller = Caller(principal, frozenset(claimed))
    for key, target in TARGETS.items():
        visible = rules.visibility(caller, key.kind)
        for permission in PERMISSIONS:
            if permission not in TABLE[key.kind].permissions:
                continue
            expected = naive(policy_list, bodies, caller, permission, key)
            assert rules.may(caller, permission, key, lambda shown=target: shown) is expected
            if permission == "view":
                assert visible.includes(key, lambda shown=target: shown) is expected
