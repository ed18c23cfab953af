"""What a change needs beside the permission on the resource itself, and the events that name who made it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.git import GitRepo
from tests.support.sandbox import workload

WORKLOADS = f"{ORG}/gvc/shop/workload"
WRITER = """kind: serviceaccount
name: writer
---
kind: policy
name: writer-creates
targetKind: workload
target: all
bindings: [{permissions: [create], principalLinks: [//serviceaccount/writer]}]
---
kind: policy
name: writer-edits
targetKind: workload
targetLinks: [//gvc/shop/workload/api, //gvc/shop/workload/open]
bindings: [{permissions: [edit], principalLinks: [//serviceaccount/writer]}]
---
kind: policy
name: writer-views
targetKind: workload
targetQuery: {kind: workload, spec: {terms: [{tag: hidden, op: "!exists"}]}}
bindings: [{permissions: [view], principalLinks: [//serviceaccount/writer]}]
---
kind: policy
name: writer-deletes
targetKind: workload
target: all
bindings: [{permissions: [delete], principalLinks: [//serviceaccount/writer]}]
"""
ENTRY = "  firewallConfig: {internal: {inboundAllowType: workload-list, inboundAllowWorkload: [//workload/secret]}}\n"

HIDDEN = workload("hidden", more='description: hidden/one\ntags: {hidden: "true"}\n')


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A writer who may not view the workload ``secret``, which ``open`` lists."""
    files = {
        **FILES,
        "shop/secret.yaml": workload("secret", more='tags: {hidden: "true"}\n'),
        "shop/open.yaml": workload("open") + ENTRY,
        "writer.yaml": WRITER,
    }
    with api_sandbox(tmp_path_factory.mktemp("admission"), files) as made:
        yield made


def listing(*links: Any) -> dict[str, Any]:
    """A patch that lets the workloads at ``links`` enter."""
    internal = {"inboundAllowType": "workload-list", "inboundAllowWorkload": list(links)}
    return {"spec": {"firewallConfig": {"internal": internal}}}


def send(sandbox: ApiSandbox, method: str, path: str, body: Any) -> httpx2.Response:
    """The response to a request of the writer, a dry run."""
    key = sandbox.api.store.add_key("writer", "", "test", None)[1]
    return sandbox.client(None).request(method, f"{path}?dryRun=true", json=body, headers={"Authorization": key})


@pytest.mark.parametrize("name", ["secret", "missing"])
def test_a_writer_lists_only_workloads_that_they_may_view(sandbox: ApiSandbox, name: str) -> None:
    new = {**listing(f"//workload/{name}")["spec"], "type": "standard", "containers": []}
    for method, path, body in (
        ("PATCH", f"{WORKLOADS}/api", listing("//workload/web", f"//gvc/shop/workload/{name}")),
        ("PATCH", f"{WORKLOADS}/api", {"$replace/spec": new}),
        ("PUT", f"{WORKLOADS}/api", listing(f"/org/acme/gvc/shop/workload/{name}")),
        ("POST", WORKLOADS, {"name": "new", "spec": new}),
    ):
        answer = send(sandbox, method, path, body)
        assert answer.status_code == 403, answer.text
        message = answer.json()["message"]
        assert message.startswith(f"serviceaccount/writer has no permission `view` on workload/shop/{name}, to"), (
            message
        )
        assert "refers at /spec/firewallConfig/internal/inboundAllowWorkload/" in message, message


def test_those_that_they_may_view_and_those_that_were_listed_are_listed(sandbox: ApiSandbox) -> None:
    for path, body in (
        (f"{WORKLOADS}/api", listing("//workload/web", "//workload/api")),
        (f"{WORKLOADS}/open", listing("//workload/secret", "//workload/web")),
        (f"{WORKLOADS}/open", {"description": "Open to a few."}),
    ):
        answer = send(sandbox, "PATCH", path, body)
        assert answer.status_code == 200, answer.text
    new = {"name": "new", "spec": {**workload_spec(), **listing("//workload/new")["spec"]}}
    assert send(sandbox, "POST", WORKLOADS, new).status_code == 200


def test_a_target_query_does_not_show_what_exists(sandbox: ApiSandbox) -> None:
    answers = [send(sandbox, "GET", f"{WORKLOADS}/{name}", None) for name in ("secret", "missing", "web")]
    assert [each.status_code for each in answers] == [403, 403, 200]
    hidden, missing = (each.json()["message"] for each in answers[:2])
    assert hidden.replace("secret", "missing") == missing


@pytest.mark.parametrize("link", [7, {}, "web", "//workload/", None])
def test_what_is_no_link_is_a_finding(sandbox: ApiSandbox, link: Any) -> None:
    answer = send(sandbox, "PATCH", f"{WORKLOADS}/api", listing(link))
    assert (answer.status_code, answer.json()["message"][:22]) == (400, "the change is refused:")


def workload_spec() -> dict[str, Any]:
    """The specification of a small workload."""
    return {"type": "standard", "containers": [{"name": "main", "image": "//image/new:1"}]}


def test_events_name_the_person_and_the_commit(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES) as sandbox:
        new = {"name": "new", "spec": workload_spec()}
        client = sandbox.client()
        commits = [
            client.request(method, path, json=body).json()["change"]["commit"][:12]
            for method, path, body in (
                ("POST", WORKLOADS, new),
                ("PATCH", f"{WORKLOADS}/web", {"tags": {"tier": "front"}}),
            )
        ]
        assert sandbox.run("apply").returncode == 0
        commits.append(client.request("DELETE", f"{WORKLOADS}/new").json()["change"]["commit"][:12])
        client.request("PATCH", f"{WORKLOADS}/web?dryRun=true", json={"tags": {"tier": "back"}})
        created, updated, deleted = commits
        assert changes_of(sandbox, "new") == [
            f"user/root: created in main by the commit {created}",
            f"user/root: deleted in main by the commit {deleted}",
        ]
        assert changes_of(sandbox, "web") == [f"user/root: updated in main by the commit {updated}"]
        client.request("POST", f"{WORKLOADS}/web/-suspend", json={"reason": "a test"})
        events = client.get(f"{WORKLOADS}/web/-eventlog")["items"]
        assert [each["message"] for each in events if each["reason"] == "Suspended"] == ["user/root: a test"]


def changes_of(sandbox: ApiSandbox, name: str) -> list[str]:
    """The messages of the events about changes of a workload through the API."""
    events = sandbox.client().get(f"{WORKLOADS}/{name}/-eventlog")["items"]
    return [each["message"] for each in events if each["reason"] == "ChangeCommitted"]


def test_an_event_names_the_branch_for_a_review(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES, api={"writes": "branch"}) as sandbox:
        change = sandbox.client().request("PATCH", f"{WORKLOADS}/web", json={"description": "New"}).json()["change"]
        expected = f"user/root: updated for a review, in the branch {change['branch']} by the commit"
        [message] = changes_of(sandbox, "web")
        assert message.startswith(expected)


def test_a_gvc_with_volume_sets_goes_with_force_alone(tmp_path: Path) -> None:
    data = "kind: volumeset\nname: data\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
    with api_sandbox(tmp_path, {**FILES, "shop/data.yaml": data}) as sandbox:
        for more, status in (("", 400), ("?force=false", 400), ("?force=true&dryRun=true", 200), ("?force=true", 202)):
            assert sandbox.client().request("DELETE", f"{ORG}/gvc/shop{more}").status_code == status, more
        assert sandbox.repo.git("ls-tree", "-r", "--name-only", "main").split() == ["access.yaml"]


def test_a_new_gvc_of_one_of_several_sources_gets_members_at_once(tmp_path: Path) -> None:
    other = GitRepo.create(tmp_path / "other.git", {"group.yaml": "kind: group\nname: others\n"})
    sources = [{"name": name, "url": str(tmp_path / f"{name}.git"), "branch": "main"} for name in ("main", "other")]
    with api_sandbox(tmp_path, FILES, sources=sources) as sandbox:
        client = sandbox.client()
        new = {"name": "new", "spec": {"staticPlacement": {"locationLinks": ["//location/here"]}}}
        answer = client.request("POST", f"{ORG}/gvc", json=new)
        assert (answer.status_code, "add ?source=NAME: main, other" in answer.text) == (400, True)
        assert client.request("POST", f"{ORG}/gvc?source=other", json=new).status_code == 201
        answer = client.request("POST", f"{ORG}/gvc/new/identity", json={"name": "me"})
        assert (answer.status_code, answer.json()["change"]["files"]) == (201, ["new/identity/me.yaml"])
        assert "new/identity/me.yaml" in other.git("ls-tree", "-r", "--name-only", "main")
        answer = client.request("POST", f"{ORG}/gvc/none/identity", json={"name": "me"})
        assert (answer.status_code, "add ?source=NAME" in answer.text) == (400, True)


def test_the_answer_to_a_change_shows_only_what_its_caller_may_view(tmp_path: Path) -> None:
    files = {**FILES, "writer.yaml": WRITER, "shop/open.yaml": workload("open"), "shop/hidden.yaml": HIDDEN}
    with api_sandbox(tmp_path, files) as sandbox:
        answer = send(sandbox, "DELETE", f"{WORKLOADS}/hidden", None).json()
        assert set(answer) == {"change"}
        assert (answer["change"]["diff"], answer["change"]["plan"]["steps"]) == ("", [])
        sandbox.repo.commit({"shop/hidden.yaml": HIDDEN.replace("hidden/one", "hidden/two")})
        response = send(sandbox, "PATCH", f"{WORKLOADS}/api", {"tags": {"a": "b"}})
        assert response.status_code == 200
        assert {step["key"] for step in response.json()["change"]["plan"]["steps"]} == {"workload/shop/api"}
        assert "hidden/two" not in response.text
        everything = sandbox.client().request("PATCH", f"{WORKLOADS}/api?dryRun=true", json={"tags": {"a": "b"}}).json()
        steps = everything["change"]["plan"]["steps"]
        assert {step["key"] for step in steps} == {"workload/shop/api", "workload/shop/hidden"}
