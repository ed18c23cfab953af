"""The authorization matrix: every operation on every kind, for callers with each permission and without.

The expected decision is a naive reading of the permission table: a caller may use an operation if one of its granted
permissions is the operation's, or implies it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest

from reconciler.api.app import OPERATIONS, make_app
from reconciler.api.table import ANY, OVERVIEW, PUBLIC, Operation
from reconciler.engines.command_types import COMMANDS, permission_for
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.model.kinds.table import MANAGE, TABLE
from reconciler.planning.drift import Drift, DriftKind, encode_drift
from reconciler.records.store import FILE, Records
from reconciler.records.tables.commands import NewCommand
from reconciler.records.tables.drift import DriftRow
from tests.support.api import ApiSandbox, api_sandbox
from tests.support.kinds import KINDS
from tests.support.sandbox import GVC

ORG = "/org/acme"
NAMES = {Kind.ORG: "acme", Kind.GVC: "shop"} | {
    kind: next(line.removeprefix("name: ") for line in text.splitlines() if line.startswith("name: "))
    for kind, text in KINDS.items()
    if kind is not Kind.ORG
}
OF_ORG = ("source", "/-approve", "/-refuse", "/-mute", "/-unmute", "/-notify-test", "/-log", "/metrics")
"""What stands in paths of operations whose permission is one on the org."""
ORG_ITSELF = frozenset({"/org/{org}", "/org/{org}/-accessreport", "/org/{org}/-eventlog"})
OF_WORKLOAD = ("/deployment", "/-replica", "/-exec")
"""What stands in paths of operations on workloads alone."""


class Account(NamedTuple):
    """A caller, and the ``granted`` permissions that it has on the resource of ``kind``."""

    name: str
    kind: Kind
    granted: frozenset[str]


class Question(NamedTuple):
    """A request, the account that makes it, and whether it may."""

    account: Account
    method: str
    path: str
    body: Any
    allowed: bool


def closure(kind: Kind, permission: str) -> frozenset[str]:
    """``permission`` and all that it implies, in the words of the permission table."""
    implied = [each for each in TABLE[kind].permissions[permission] if each != permission]
    return frozenset({permission}).union(*(closure(kind, each) for each in implied))


def accounts() -> Iterator[tuple[Account, str]]:
    """Every account with its policy: each permission; all on another resource; all for a namesake in another org."""
    for kind in Kind:
        link = f"/org/acme/gvc/shop/{kind}/{NAMES[kind]}" if kind in GVC_SCOPED else f"/org/acme/{kind}/{NAMES[kind]}"
        # The audit log of the API is a built-in context.
        more = ", //auditctx/platform" if kind is Kind.AUDITCTX else ""
        one = "target: all" if kind is Kind.ORG else f"targetLinks: [{link}{more}]"
        for permission in TABLE[kind].permissions:
            name = f"{kind}-{permission.replace('.', '-').lower()}"
            yield Account(name, kind, closure(kind, permission)), policy(name, kind, permission, one)
        another = "targetQuery: {spec: {terms: [{property: name, value: another}]}}"
        if kind in GVC_SCOPED:
            another = f"targetLinks: [//gvc/depot/{kind}/{NAMES[kind]}]"
        name = f"{kind}-another"
        yield Account(name, kind, frozenset()), policy(name, kind, "manage", another)
        name = f"{kind}-nothing"
        yield Account(name, kind, frozenset()), policy(name, kind, "manage", one, "/org/other")


def policy(name: str, kind: Kind, permission: str, target: str, org: str = "/org/acme") -> str:
    """A policy that grants ``permission`` to the service account ``name`` of ``org``."""
    binding = f"{{permissions: [{permission}], principalLinks: [{org}/serviceaccount/{name}]}}"
    return f"---\nkind: policy\nname: {name}\ntargetKind: {kind}\n{target}\nbindings: [{binding}]\n"


def files() -> dict[str, str]:
    """A resource of each kind, the accounts and their policies."""
    shop = GVC.replace(", //location/there", "")
    manifests = {"shop/gvc.yaml": shop, "depot/gvc.yaml": shop.replace("name: shop", "name: depot")}
    manifests |= {f"shop/{kind}.yaml": text for kind, text in KINDS.items()}
    manifests |= {f"depot/{kind}.yaml": KINDS[kind] for kind in GVC_SCOPED}
    made = "".join(f"---\nkind: serviceaccount\nname: {each.name}\n" for each, _ in accounts())
    return manifests | {"accounts.yaml": made, "policies.yaml": "".join(text for _, text in accounts())}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """All kinds, applied; changes are refused after the decision on access, so that no question changes an answer."""
    path = tmp_path_factory.mktemp("authorization")
    others = [f"/org/other/serviceaccount/{kind}-nothing" for kind in Kind]
    settings = {"external": others, "locations": {"here": {"engine": "recorded"}}}
    with api_sandbox(path, files(), api={"writes": "refuse"}, **settings) as made:
        yield made


def questions() -> Iterator[Question]:
    """Every operation with a permission, on every kind that its path fits, by every account of that kind."""
    for account, _ in accounts():
        for operation in OPERATIONS:
            if operation.permission == OVERVIEW and account.kind is Kind.ORG:
                path = operation.path.format(org="acme", name="main", digest="0" * 8)
                yield Question(account, "GET", f"{path}?key=gvc/shop", None, allowed=False)
            elif operation.permission not in (ANY, OVERVIEW, PUBLIC) and (path := path_of(operation, account.kind)):
                yield question(operation, account, path)


def path_of(operation: Operation, kind: Kind) -> str:
    """The path of ``operation`` on the resource of ``kind``; "" if it has none."""
    path = operation.path
    of_org = path in ORG_ITSELF or any(text in path for text in OF_ORG)
    if of_org or kind is Kind.ORG:
        path = path.replace("{name}", "main") if of_org and kind is Kind.ORG else ""
    elif "/-audit" in path:
        return path.replace("{org}", "acme") if kind is Kind.AUDITCTX else ""
    elif ("{gvc}" in path) is not (kind in GVC_SCOPED):
        return ""
    fixed = next((kind for kind in Kind if f"/{kind}/{{name}}" in path), kind)
    if fixed is not kind or (any(text in path for text in OF_WORKLOAD) and kind is not Kind.WORKLOAD):
        return ""
    if "-command" in path and operation.method == "POST" and kind not in COMMANDS:
        return ""
    names = {"org": "acme", "gvc": "shop", "kind": str(kind), "name": NAMES[kind], "id": "none", "location": "here"}
    for word, value in names.items():
        path = path.replace(f"{{{word}}}", value)
    return f"{path}?timeoutSeconds=0" if path.endswith("/-watch") else path


def question(operation: Operation, account: Account, path: str) -> Question:
    """``operation`` at ``path``, with a body that is read after the decision."""
    needed, body = operation.permission, None
    if operation.permission == "exec.TYPE":
        kind = next(iter(COMMANDS[account.kind]))
        needed, body = permission_for(kind), {"type": kind, "spec": {"unknown": 1}}
    elif operation.method in ("POST", "PUT", "PATCH"):
        body = {"name": NAMES[account.kind]} if operation.permission == "create" else []
    if needed == "delete" and needed not in TABLE[account.kind].permissions:
        needed = MANAGE
    return Question(account, operation.method, path, body, needed in account.granted)


def answers(sandbox: ApiSandbox, asked: list[Question]) -> list[httpx2.Response]:
    """The response to each question, one after the other."""
    keys = {
        name: sandbox.api.store.add_key(name, "", "test", None)[1] for name in {each.account.name for each in asked}
    }
    app = make_app(sandbox.api)

    async def ask() -> list[httpx2.Response]:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://api") as client:
            return [
                await client.request(
                    each.method, each.path, json=each.body, headers={"Authorization": keys[each.account.name]}
                )
                for each in asked
            ]

    return asyncio.run(ask())


def key_of(kind: Kind) -> Key:
    """The resource of ``kind`` that accounts of this kind have permissions on."""
    return Key(kind, "shop" if kind in GVC_SCOPED else "", NAMES[kind])


def refused(response: httpx2.Response) -> bool:
    """Whether it was refused for want of a permission, rather than for what the settings forbid."""
    return response.status_code == 403 and "has no permission" in response.json()["message"]


def test_nothing_is_allowed_that_is_not_granted_and_nothing_refused_that_is(sandbox: ApiSandbox) -> None:
    asked = list(questions())
    assert len({(question.method, question.path) for question in asked}) > 250
    wrong = [
        (question.account.name, question.method, question.path, response.status_code, response.text[:200])
        for question, response in zip(asked, answers(sandbox, asked), strict=True)
        if refused(response) is question.allowed or response.status_code in (401, 500)
    ]
    assert not wrong, msgspec.json.encode(wrong[:20]).decode()


def test_a_list_shows_what_the_caller_may_view_and_nothing_else(sandbox: ApiSandbox) -> None:
    asked = [
        Question(account, method, path, body, "view" in account.granted)
        for account, _ in accounts()
        if account.kind is not Kind.ORG
        for method, path, body in lists_of(account.kind)
    ]
    for question, response in zip(asked, answers(sandbox, asked), strict=True):
        assert response.status_code == 200, response.text
        page = response.json()
        names = {item["name"] for item in page["items"]}
        names.discard("platform")  # the built-in audit context
        assert names == ({NAMES[question.account.kind]} if question.allowed else set()), question
        assert not [link for link in page["links"] if link["rel"] == "next"], "no page shows that there is more"


def test_a_missing_gvc_is_an_empty_one_for_callers_who_may_not_view_it(sandbox: ApiSandbox) -> None:
    asked = [
        Question(account, method, path.replace("/gvc/shop/", "/gvc/nope/"), body, allowed=True)
        for account, _ in accounts()
        if account.kind is Kind.WORKLOAD
        for method, path, body in lists_of(Kind.WORKLOAD)
    ]
    assert [(response.status_code, response.json()["items"]) for response in answers(sandbox, asked)] == [
        (200, []) for _ in asked
    ]


def test_a_permission_on_a_kind_is_none_on_another(sandbox: ApiSandbox) -> None:
    managers = [account for account, _ in accounts() if account.name == f"{account.kind}-manage"]
    asked = [
        question(operation, owner, path)._replace(account=managers[number - 1], allowed=False)
        for number, owner in enumerate(managers)
        for operation in OPERATIONS
        if operation.permission not in (ANY, PUBLIC) and (path := path_of(operation, owner.kind))
        # Who may read the logs of a workload reads them where those of all are.
        if not (path.endswith("/-log") and managers[number - 1].kind is Kind.WORKLOAD)
    ]
    assert len({question.path for question in asked}) > 200
    allowed = [
        (question.account.name, question.method, question.path, response.status_code, response.text[:200])
        for question, response in zip(asked, answers(sandbox, asked), strict=True)
        if not refused(response)
    ]
    assert not allowed, msgspec.json.encode(allowed[:20]).decode()


def test_only_who_may_make_a_command_may_cancel_it(sandbox: ApiSandbox) -> None:
    types = [(kind, text) for kind, known in COMMANDS.items() for text in known]
    with closing(Records.open(sandbox.state / FILE)) as records:
        ids = {
            (kind, text): records.commands.add(NewCommand(key_of(kind), "here", text, {}, "test"))
            for kind, text in types
        }
    # A command that one account has cancelled is still there for the next one to be refused or not.
    asked = [
        Question(
            account,
            "DELETE",
            f"{ORG}/gvc/shop/{kind}/{NAMES[kind]}/-command/{ids[kind, text]}",
            None,
            {"view", permission_for(text)} <= account.granted,
        )
        for account, _ in accounts()
        for kind, text in types
        if kind is account.kind
    ]
    responses = answers(sandbox, asked)
    assert {response.status_code for response in responses} == {200, 403}
    assert [
        question for question, response in zip(asked, responses, strict=True) if refused(response) is question.allowed
    ] == []


def test_the_org_is_read_by_who_may_view_it(sandbox: ApiSandbox) -> None:
    asked = [
        Question(account, "GET", ORG, None, account.kind is Kind.ORG and "view" in account.granted)
        for account, _ in accounts()
    ]
    for question, response in zip(asked, answers(sandbox, asked), strict=True):
        assert response.status_code == (200 if question.allowed else 403), question


def test_drift_shows_what_the_caller_may_view_and_nothing_else(sandbox: ApiSandbox) -> None:
    drifts = [Drift(key_of(kind), "here", DriftKind.MISSING) for kind in Kind]
    with closing(Records.open(sandbox.state / FILE)) as records:
        records.drifts.put_many(DriftRow(str(drift.key), "here", "main", 0.0, encode_drift(drift)) for drift in drifts)
    try:
        asked = [
            Question(account, "GET", f"{ORG}/-drift", None, "view" in account.granted) for account, _ in accounts()
        ]
        for question, response in zip(asked, answers(sandbox, asked), strict=True):
            assert response.status_code == 200, response.text
            shown = [item["key"] for item in response.json()["items"]]
            assert shown == ([str(key_of(question.account.kind))] if question.allowed else []), question
    finally:
        with closing(Records.open(sandbox.state / FILE)) as records:
            for drift in drifts:
                records.drifts.remove(drift.key, "here")


def test_a_watch_shows_what_the_caller_may_view_and_nothing_else(sandbox: ApiSandbox) -> None:
    asked = [
        Question(account, "GET", f"{path}/-watch?after=0&timeoutSeconds=0", None, "view" in account.granted)
        for account, _ in accounts()
        if account.kind is not Kind.ORG
        for _, path, _ in list(lists_of(account.kind))[:1]
    ]
    for question, response in zip(asked, answers(sandbox, asked), strict=True):
        assert response.status_code == 200, response.text
        events = [dict(line.split(": ", 1) for line in part.split("\n")) for part in response.text.split("\n\n")[:-1]]
        names = [msgspec.json.decode(event["data"])["name"] for event in events if event["event"] != "bookmark"]
        assert names == ([NAMES[question.account.kind]] if question.allowed else []), question


def lists_of(kind: Kind) -> Iterator[tuple[str, str, Any]]:
    """The requests that list resources of ``kind``."""
    path = f"{ORG}/gvc/shop/{kind}" if kind in GVC_SCOPED else f"{ORG}/{kind}"
    yield "GET", path, None
    yield "POST", f"{path}/-query", {"kind": str(kind), "spec": {"match": "all", "terms": []}}


def test_a_change_of_many_needs_what_a_change_of_each_does(sandbox: ApiSandbox) -> None:
    asked = [change for account, _ in accounts() for change in changes_of_many(account)]
    wrong = [
        (question.account.name, question.body, response.status_code, response.text[:200])
        for question, response in zip(asked, answers(sandbox, asked), strict=True)
        if refused(response) is question.allowed or response.status_code in (401, 500)
    ]
    assert not wrong, msgspec.json.encode(wrong[:20]).decode()
    assert {question.account.kind for question in asked} == {*Kind} - {Kind.USER}


def changes_of_many(account: Account) -> Iterator[Question]:
    """The changes of -apply that replace, create and delete a resource of the account's kind."""
    kind = account.kind
    scope = {"kind": str(kind), **({"gvc": "shop"} if kind in GVC_SCOPED else {})}
    path = f"{ORG}/-apply?dryRun=true"
    if kind not in (Kind.USER, Kind.POLICY, Kind.GROUP):  # a change of their manifests grants something too
        existing = {**scope, "name": NAMES[kind]}  # without its links, which need permissions on others too
        yield Question(account, "POST", path, {"items": [existing]}, "edit" in account.granted)
    if kind in (Kind.ORG, Kind.USER):
        return
    if "create" in TABLE[kind].permissions:
        # Of the accounts, one may do everything with a resource of this name.
        is_granted = account.name == f"{kind}-another" and kind not in GVC_SCOPED
        yield Question(account, "POST", path, {"items": [{**scope, "name": "another"}]}, is_granted)
    link = f"//gvc/shop/{kind}/{NAMES[kind]}" if kind in GVC_SCOPED else f"//{kind}/{NAMES[kind]}"
    needed = "delete" if "delete" in TABLE[kind].permissions else MANAGE
    yield Question(account, "POST", path, {"delete": [link]}, needed in account.granted)


def test_every_operation_with_a_permission_is_in_the_matrix() -> None:
    protected = [each for each in OPERATIONS if each.permission not in (ANY, OVERVIEW, PUBLIC)]
    missing = [each.path for each in protected if not any(path_of(each, kind) for kind in Kind)]
    assert missing == ["/org/{org}/{kind}/{name}/-command"], "no kind outside GVCs takes commands"
