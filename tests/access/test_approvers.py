"""Who may approve: groups by name, people as a number, and never the address of anybody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.access.approvers import Approvers, describe_approvers, read_approvers
from reconciler.access.rules import AccessRules, Caller, built_in_grants, policy_grants
from reconciler.model.key import Key, Kind
from reconciler.records.store import FILE, Records
from reconciler.settings import ApiSettings, Settings
from tests.records.samples import record

ORG = Key(Kind.ORG, "", "acme")
API = ApiSettings("127.0.0.1:8443")
POLICIES: dict[str, dict[str, Any]] = {
    "ops": {"target": "all", "bindings": [{"permissions": ["approve"], "principalLinks": ["//group/ops"]}]},
    "leads": {
        "targetLinks": ["//org/acme"],
        "bindings": [
            {
                "permissions": ["manage"],
                "principalLinks": ["//group/leads", "//user/ada@example.com", "//serviceaccount/ci"],
            }
        ],
    },
    "readers": {"target": "all", "bindings": [{"permissions": ["view"], "principalLinks": ["//group/all"]}]},
    "tagged": {
        "targetQuery": {"spec": {"match": "all", "terms": [{"tag": "team", "value": "web"}]}},
        "bindings": [{"permissions": ["approve"], "principalLinks": ["//group/web"]}],
    },
    "elsewhere": {
        "targetLinks": ["//org/other"],
        "bindings": [{"permissions": ["approve"], "principalLinks": ["//group/other"]}],
    },
    "workloads": {
        "targetKind": "workload",
        "target": "all",
        "bindings": [{"permissions": ["manage"], "principalLinks": ["//group/org"]}],
    },
}


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    made = Records.open(tmp_path / FILE)
    yield made
    made.close()


def put(records: Records, key: str, body: dict[str, Any]) -> None:
    records.applied.put(msgspec.structs.replace(record(key), body=msgspec.json.encode(body)))


def put_policies(records: Records) -> None:
    for name, body in POLICIES.items():
        put(records, f"policy/{name}", {"kind": "policy", "name": name, "targetKind": "org", **body})


def settings(tmp_path: Path, **changes: Any) -> Settings:
    return Settings(org="acme", sources=(), state=tmp_path, **{"api": API, **changes})


def test_those_are_named_whom_a_policy_lets_approve(records: Records, tmp_path: Path) -> None:
    put_policies(records)
    found = read_approvers(records, settings(tmp_path))
    assert found == Approvers(("leads", "ops", "superusers"), people=1, programs=1)
    put(records, str(ORG), {"kind": "org", "name": "acme", "tags": {"team": "web"}})
    assert read_approvers(records, settings(tmp_path)).groups == ("leads", "ops", "web", "superusers")


def test_the_same_may_approve_by_the_rules_of_access(records: Records, tmp_path: Path) -> None:
    put_policies(records)
    bodies = {key: msgspec.json.decode(records.applied.get(f"policy/{key}")[0].body) for key in POLICIES}
    grants = [
        grant for name, body in bodies.items() for grant in policy_grants(Key.parse(f"policy/{name}"), body, "acme")
    ]
    rules = AccessRules([*built_in_grants(), *grants], {}, {}, "acme")
    names = {principal for grant in rules.grants_on(Kind.ORG) for principal in grant.principals}
    may = {name for name in names if rules.may(Caller(name), "approve", ORG, dict)}
    groups = {name.removeprefix("group/") for name in may if name.startswith("group/")}
    assert groups == set(read_approvers(records, settings(tmp_path)).groups)


def test_without_an_api_only_operators_of_the_host_may(records: Records, tmp_path: Path) -> None:
    put_policies(records)
    found = read_approvers(records, settings(tmp_path, api=None, approval_four_eyes=True))
    assert describe_approvers(found) == "an operator of the host, but no author of the change"


@pytest.mark.parametrize(
    ("approvers", "text"),
    [
        (Approvers(("superusers",)), "the group <superusers>, or an operator of the host"),
        (
            Approvers(("ops", "superusers"), 1),
            "the groups <ops> and <superusers>, 1 other person, or an operator of the host",
        ),
        (
            Approvers(("a", "b", "c", "d"), 12, 1),
            "the groups <a>, <b>, <c> and 1 other, 12 other people, 1 program, or an operator of the host",
        ),
        (
            Approvers((*"abcdefgh",), 0, 2, four_eyes=True),
            "the groups <a>, <b>, <c> and 5 others, 2 programs, or an operator of the host, "
            "but no author of the change",
        ),
        (Approvers((), 2), "2 people, or an operator of the host"),
    ],
)
def test_few_are_named_and_the_others_are_counted(approvers: Approvers, text: str) -> None:
    assert describe_approvers(approvers, lambda name: f"<{name}>") == text


def test_no_address_is_in_any_text(records: Records, tmp_path: Path) -> None:
    put_policies(records)
    assert "@" not in describe_approvers(read_approvers(records, settings(tmp_path)))
