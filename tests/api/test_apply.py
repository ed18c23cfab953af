"""Several resources as one change: one check, one plan, one commit, one review; all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import FILES
from tests.api.test_references import account
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.git import GitRepo
from tests.support.sandbox import workload
from tests.support.work import counted

APPLY = f"{ORG}/-apply"


def spec(**more: Any) -> dict[str, Any]:
    """The specification of a small workload."""
    return {"type": "standard", "containers": [{"name": "main", "image": "//image/a:1"}], **more}


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox of its own, whose Git is written."""
    with api_sandbox(tmp_path, FILES) as made:
        yield made


def send(sandbox: ApiSandbox, body: Any, query: str = "", **headers: str) -> tuple[int, Any]:
    """Status and body of a change by a superuser."""
    answer = sandbox.client().request("POST", f"{APPLY}{query}", json=body, headers=headers)
    return answer.status_code, answer.json()


def history(sandbox: ApiSandbox) -> list[str]:
    """Subjects of the branch, newest first."""
    return sandbox.repo.git("log", "--format=%s", "main").splitlines()


def app(name: str = "newapp") -> list[dict[str, Any]]:
    """A GVC, an identity and a workload that uses it."""
    return [
        {"kind": "workload", "name": "web", "gvc": name, "spec": spec(identityLink=f"//gvc/{name}/identity/web")},
        {"kind": "identity", "name": "web", "gvc": name},
        {"kind": "gvc", "name": name, "spec": {"staticPlacement": {"locationLinks": ["//location/here"]}}},
    ]


def actions(answer: Any) -> dict[str, str]:
    """What became of each resource."""
    return {each["link"].removeprefix(f"{ORG}/"): each["action"] for each in answer["items"]}


def test_what_depends_on_each_other_is_one_commit_with_one_plan(sandbox: ApiSandbox) -> None:
    body = {"items": app(), "delete": ["//gvc/shop/workload/api", "//gvc/shop/workload/none"]}
    code, shown = send(sandbox, body, "?dryRun=true")
    assert (code, shown["change"]["commit"], len(history(sandbox))) == (200, None, 1)
    code, answer = send(sandbox, body, f"?digest={shown['change']['plan']['digest']}")
    assert code == 200, answer
    assert actions(answer) == {
        "gvc/newapp/workload/web": "created",
        "gvc/newapp/identity/web": "created",
        "gvc/newapp": "created",
        "gvc/shop/workload/api": "deleted",
        "gvc/shop/workload/none": "missing",
    }
    assert actions(shown) == actions(answer)
    assert history(sandbox)[0] == "Apply workload/shop/api and 3 more"
    assert len(history(sandbox)) == 2
    entries = sandbox.client().get(f"{ORG}/-audit?limit=100")["items"]
    assert [entry["target"] for entry in entries if entry["message"]] == [APPLY]
    assert "workload/newapp/web created" in entries[-1]["message"]
    assert answer["change"]["plan"]["steps"] == shown["change"]["plan"]["steps"]
    assert (shown["change"]["diff"], shown["change"]["files"]) == (answer["change"]["diff"], answer["change"]["files"])
    # The daemon does what was shown.
    plan = sandbox.client().get(f"{ORG}/source/main/-plan")
    assert plan["digest"] == answer["change"]["plan"]["digest"] == shown["change"]["plan"]["digest"]
    assert sandbox.run("apply").returncode == 0
    assert sandbox.client().get(f"{ORG}/gvc/newapp/workload/web")["name"] == "web"
    for name in ("web", "none"):
        events = sandbox.client().get(f"{ORG}/gvc/newapp/workload/{name}/-eventlog")["items"] if name == "web" else []
        assert len([event for event in events if event["reason"] == "ChangeCommitted"]) == (name == "web")


def test_one_fault_holds_back_all_and_names_its_field(sandbox: ApiSandbox) -> None:
    items = app()
    items[0]["spec"]["containers"][0]["memory"] = "3 apples"
    code, answer = send(sandbox, {"items": items})
    assert (code, len(history(sandbox))) == (400, 1)
    assert [each["field"] for each in answer["details"]] == ["/spec/containers/0/memory"]


def test_what_is_as_wanted_stays_and_is_no_commit(sandbox: ApiSandbox) -> None:
    document = sandbox.client().get(f"{ORG}/gvc/shop/workload/web")
    code, answer = send(sandbox, {"items": [document]})
    assert (code, answer["change"], actions(answer)) == (200, None, {"gvc/shop/workload/web": "unchanged"})
    changed = {**document, "description": "The page"}
    api = sandbox.client().get(f"{ORG}/gvc/shop/workload/api")
    code, answer = send(sandbox, {"items": [api, changed]})
    assert actions(answer) == {"gvc/shop/workload/api": "unchanged", "gvc/shop/workload/web": "updated"}
    assert answer["change"]["files"] == ["shop/web.yaml"]
    # A declaration replaces what others wrote, also what is not applied yet.
    assert send(sandbox, {"items": [document]})[1]["items"][0]["action"] == "updated"
    assert send(sandbox, {"items": [app()[2]]})[1]["items"][0]["action"] == "created"
    again = {**app()[2], "description": "new"}
    assert send(sandbox, {"items": [again]})[0] == 200
    assert sandbox.repo.git("show", "main:gvc/newapp.yaml").count("kind: gvc") == 1
    assert send(sandbox, {"delete": ["//workload/x"]})[0] == 400
    assert send(sandbox, {"delete": ["//gvc/shop/workload/none"]})[1]["change"] is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "1 to 1000"),
        ({"items": [{"kind": "thing", "name": "a"}]}, "items[0] has no kind"),
        ({"items": [{"kind": "workload", "name": "a"}]}, "items[0]: a workload names its `gvc`"),
        ({"items": [{"kind": "gvc"}]}, "with a name"),
        ({"items": [{"kind": "group", "name": "ops"}] * 2}, "group/ops is in this change 2 times"),
        ({"items": [{"kind": "group", "name": "../x"}]}, "the name '../x' is wrong"),
        ({"delete": ["group ops"]}, "is not a link"),
        ({"delete": ["//group/superusers"]}, "is built in"),
        ({"items": [], "more": 1}, "more"),
        ({"items": [{"kind": "org", "name": "other"}]}, "has the org acme alone"),
    ],
)
def test_a_wrong_body_is_refused(sandbox: ApiSandbox, body: Any, words: str) -> None:
    code, answer = send(sandbox, body)
    assert (code, words in answer["message"]) == (400, True), answer
    assert len(history(sandbox)) == 1


def test_each_resource_needs_its_permission(tmp_path: Path) -> None:
    accounts = account("author", "workload", "create", "edit", "view") + account("builder", "gvc", "create")
    for kind, permission in (("identity", "create"), ("workload", "create"), ("location", "use")):
        bound = f"{{permissions: [{permission}], principalLinks: [//serviceaccount/builder]}}"
        accounts += f"---\nkind: policy\nname: {kind}s\ntargetKind: {kind}\ntarget: all\nbindings: [{bound}]\n"
    files = {**FILES, "accounts.yaml": accounts.removeprefix("---\n")}
    with api_sandbox(tmp_path, files) as sandbox:

        def ask(name: str, body: Any) -> tuple[int, Any]:
            key = sandbox.api.store.add_key(name, "", "test", None)[1]
            answer = sandbox.client(None).request("POST", APPLY, json=body, headers={"Authorization": key})
            return answer.status_code, answer.json()

        code, answer = ask("author", {"items": app()})
        assert (code, "no permission `create` on identity/newapp/web" in answer["message"]) == (403, True)
        code, answer = ask("author", {"delete": ["//gvc/shop/workload/web"]})
        assert (code, "no permission `delete`" in answer["message"]) == (403, True)
        assert len(history(sandbox)) == 1
        # What the same change creates may be referred to: its author knows all of it.
        code, answer = ask("builder", {"items": app()})
        assert code == 200, answer
        thief = {"kind": "workload", "name": "x", "gvc": "newapp", "spec": spec(identityLink="//identity/web")}
        assert sandbox.run("apply").returncode == 0
        code, answer = ask("builder", {"items": [thief]})
        assert (code, "`use` on identity/newapp/web" in answer["message"]) == (403, True)


def test_members_of_a_built_in_group_need_manage(tmp_path: Path) -> None:
    accounts = account("editor", "group", "create", "edit")
    joined = {"kind": "group", "name": "superusers", "memberLinks": ["//serviceaccount/editor"]}
    with api_sandbox(tmp_path, {**FILES, "accounts.yaml": accounts.removeprefix("---\n")}) as sandbox:
        key = sandbox.api.store.add_key("editor", "", "test", None)[1]
        for _ in range(2):
            answer = sandbox.client(None).request(
                "POST", APPLY, json={"items": [joined]}, headers={"Authorization": key}
            )
            assert (answer.status_code, "`manage` on group/superusers" in answer.text) == (403, True)
            assert send(sandbox, {"items": [{**joined, "memberLinks": ["//user/ann@example.com"]}]})[0] == 200
            assert sandbox.run("apply").returncode == 0
        assert send(sandbox, {"items": [{"kind": "policy", "name": "viewers-gvc"}]})[0] == 400


def test_a_review_has_one_branch(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES, api={"writes": "branch"}) as sandbox:
        code, answer = send(sandbox, {"items": app()}, **{"Idempotency-Key": "once"})
        assert code == 200, answer
        branch = answer["change"]["branch"]
        branches = sandbox.repo.git(
            "for-each-ref", "--format=%(refname:short)", "refs/heads/reconciler/change-*"
        ).split()
        assert branches == [branch]
        assert send(sandbox, {"items": app()}, **{"Idempotency-Key": "once"})[1] == answer
        sandbox.repo.git("update-ref", "refs/heads/main", branch)
        plan = sandbox.client().get(f"{ORG}/source/main/-plan")
        assert plan["digest"] == answer["change"]["plan"]["digest"]


def test_a_change_with_another_plan_than_the_one_shown_is_refused(sandbox: ApiSandbox) -> None:
    digest = send(sandbox, {"items": app()}, "?dryRun=true")[1]["change"]["plan"]["digest"]
    sandbox.repo.commit({"shop/more.yaml": workload("more")})
    code, answer = send(sandbox, {"items": app()}, f"?digest={digest}")
    assert (code, f"and not {digest}" in answer["message"]) == (409, True)


def test_a_change_is_for_one_source(tmp_path: Path) -> None:
    GitRepo.create(tmp_path / "other.git", {"group.yaml": "kind: group\nname: others\n"})
    sources = [{"name": name, "url": str(tmp_path / f"{name}.git"), "branch": "main"} for name in ("main", "other")]
    with api_sandbox(tmp_path, FILES, sources=sources) as sandbox:
        groups = [{"kind": "group", "name": name, "description": "x"} for name in ("others", "web")]
        code, answer = send(sandbox, {"items": groups})
        assert (code, "group/others in other" in answer["message"]) == (400, True)
        assert send(sandbox, {"items": app()})[0] == 400
        assert send(sandbox, {"items": app()}, "?source=other")[0] == 200
        member = {"kind": "identity", "name": "more", "gvc": "shop"}
        code, answer = send(sandbox, {"items": [member]})
        assert (code, answer["change"]["files"]) == (200, ["shop/identity/more.yaml"])


def test_a_gvc_goes_with_its_members_in_the_same_change(sandbox: ApiSandbox) -> None:
    code, answer = send(sandbox, {"items": app(), "delete": ["//gvc/shop"]})
    assert code == 200, answer
    assert "shop/web.yaml" in answer["change"]["files"]
    assert actions(answer)["gvc/shop"] == "deleted"
    files = sandbox.repo.git("ls-tree", "-r", "--name-only", "main").split()
    assert not [each for each in files if each.startswith("shop/")]
    moved = {"kind": "identity", "name": "late", "gvc": "shop"}
    assert send(sandbox, {"items": [moved], "delete": ["//gvc/shop"]})[0] == 400


def test_secrets_are_not_shown_and_other_files_are(sandbox: ApiSandbox) -> None:
    secret = {"kind": "secret", "name": "new", "type": "dictionary", "data": {"a": "planted-value"}}
    code, answer = send(sandbox, {"items": [secret, *app()]})
    assert code == 200, answer
    assert "planted-value" not in str(answer)
    assert "+kind: identity" in answer["change"]["diff"]


def test_many_items_of_one_file_cost_what_each_costs(tmp_path: Path) -> None:
    few, many = (cost_of(tmp_path / str(count), count) for count in (25, 50))
    assert many <= 2.3 * few


def cost_of(path: Path, count: int) -> int:
    """Calls of a change of ``count`` resources that one file declares, a document each."""
    path.mkdir()
    documents = (workload(f"w{number}", more=f"description: old {number}  # why\n") for number in range(count))
    with api_sandbox(path, FILES | {"shop/many.yaml": "---\n".join(documents)}) as sandbox:
        items = [
            {"kind": "workload", "name": f"w{number}", "gvc": "shop", "description": "new", "spec": spec()}
            for number in range(count)
        ]
        with counted() as work:  # and in the first request, since it starts the thread that writes
            code, answer = send(sandbox, {"items": items}, "?dryRun=true")
        assert (code, [*actions(answer).values()]) == (200, ["updated"] * count)
    assert answer["change"]["files"] == ["shop/many.yaml"]
    assert answer["change"]["diff"].count("\n+description: new ") == count
    return work.calls
