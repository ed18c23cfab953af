"""A change counts from what its client saw: nothing that others wrote since is undone, and both versions are shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import FILES
from tests.api.test_references import account
from tests.support.api import ORG, ApiSandbox, api_sandbox

WEB = f"{ORG}/gvc/shop/workload/web"
DB = f"{ORG}/secret/db"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox of its own, whose Git is written, with another writer."""
    files = {**FILES, "robot.yaml": account("robot", "workload", "edit", "delete").removeprefix("---\n")}
    with api_sandbox(tmp_path, files) as made:
        yield made


def send(sandbox: ApiSandbox, method: str, body: Any = None, path: str = WEB, **headers: str) -> tuple[int, Any]:
    """Status and body of a request by a superuser."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = sandbox.client().request(method, path, json=body, headers=named)
    return answer.status_code, answer.json()


def read(sandbox: ApiSandbox, path: str = WEB) -> tuple[dict[str, Any], str]:
    """A resource, and its entity tag."""
    answer = sandbox.client().request("GET", path)
    return answer.json(), answer.headers["ETag"]


def plain(document: dict[str, Any]) -> dict[str, Any]:
    """The manifest in a document, without what the server sets: nothing in it says when it was read."""
    return {name: value for name, value in document.items() if name in ("description", "tags", "spec")}


def text(sandbox: ApiSandbox, path: str = "shop/web.yaml") -> str:
    """A file at the tip of the branch."""
    return sandbox.repo.git("show", f"main:{path}")


@pytest.mark.parametrize("names_what_it_saw", ["by tag", "by revision"])
@pytest.mark.parametrize("is_applied", [True, False])
def test_two_clients_change_two_fields_and_both_changes_stay(
    sandbox: ApiSandbox, names_what_it_saw: str, is_applied: bool
) -> None:
    document, tag = read(sandbox)
    mine = plain(document) if names_what_it_saw == "by tag" else document
    headers = {"If_Match": tag} if names_what_it_saw == "by tag" else {}
    assert send(sandbox, "PUT", {**mine, "description": "by the first"}, **headers)[0] == 200
    if is_applied:
        assert sandbox.run("apply").returncode == 0
    tags = {**document["tags"], "second": "x"}
    code, answer = send(sandbox, "PUT", {**mine, "tags": tags}, **headers)
    assert code == 200, answer
    assert "description: by the first" in text(sandbox)
    assert "second: x" in text(sandbox)
    code, answer = send(sandbox, "PUT", {**mine, "description": "by the third"}, **headers)
    assert code == 409
    assert "by the third" in answer["details"]["yours"]
    assert "by the first" in answer["details"]["theirs"]
    assert "by the first" in text(sandbox)


def test_a_person_who_pushes_is_not_undone_in_a_suspended_source(sandbox: ApiSandbox) -> None:
    assert sandbox.client().request("POST", f"{ORG}/source/main/-suspend", json={"reason": "a test"}).status_code == 200
    document, tag = read(sandbox)
    sandbox.repo.commit({"shop/web.yaml": text(sandbox) + "\ndescription: by a person\n"})
    for headers in ({}, {"If_Match": tag}):
        code, answer = send(sandbox, "PUT", {**document, "description": "by a client"}, **headers)
        assert (code, "by a person" in answer["details"]["theirs"]) == (409, True)
    code, answer = send(sandbox, "PUT", {**document, "tags": {"team": "web", "a": "b"}}, If_Match=tag)
    assert code == 200, answer
    assert "by a person" in text(sandbox)


def test_who_names_nothing_that_they_saw_replaces_what_they_wrote_last(sandbox: ApiSandbox) -> None:
    declared = plain(read(sandbox)[0])
    code, answer = send(sandbox, "PUT", {**declared, "description": "by a program"})
    assert code == 409, "it never wrote this resource"
    assert "read it" in answer["message"]
    assert send(sandbox, "PUT", {**declared})[1]["change"] is None, "it is as wanted"
    assert send(sandbox, "PATCH", {"description": "by a program"})[0] == 200
    again = {**declared, "description": "by a program", "tags": {"team": "web", "a": "1"}}
    assert send(sandbox, "PUT", again)[0] == 200
    key = sandbox.api.store.add_key("robot", "", "test", None)[1]
    other = sandbox.client(None).request("PATCH", WEB, json={"tags": {"b": "2"}}, headers={"Authorization": key})
    assert other.status_code == 200, other.text
    for wanted in ({**again, "description": "a new text"}, {**again, "tags": {"b": "3"}}):
        code, answer = send(sandbox, "PUT", wanted)
        assert (code, "b: " in answer["details"]["theirs"]) == (409, True)
    assert send(sandbox, "PUT", {**again, "tags": {"b": "3"}}, If_Match="*")[0] == 200
    assert "a: " not in text(sandbox)


def test_patches_and_deletes_keep_the_condition_too(sandbox: ApiSandbox) -> None:
    _, tag = read(sandbox)
    assert send(sandbox, "PATCH", {"description": "new"})[0] == 200
    assert send(sandbox, "PATCH", {"tags": {"a": "1"}}, If_Match=tag)[0] == 200
    code, answer = send(sandbox, "PATCH", {"description": "newer"}, If_Match=tag)
    assert (code, "description: new" in answer["details"]["theirs"]) == (409, True)
    assert send(sandbox, "DELETE", If_Match=tag)[0] == 409
    assert sandbox.run("apply").returncode == 0
    assert send(sandbox, "DELETE", If_Match=read(sandbox)[1])[0] == 202


def test_the_tag_of_a_change_names_what_it_wrote(sandbox: ApiSandbox) -> None:
    answer = sandbox.client().request("PATCH", WEB, json={"description": "first"})
    second = sandbox.client().request(
        "PUT", WEB, json={**plain(answer.json()), "description": "second"}, headers={"If-Match": answer.headers["ETag"]}
    )
    assert second.status_code == 200, second.text
    weak = f"W/{second.headers['ETag']}"
    third = sandbox.client().request("PATCH", WEB, json={"description": "third"}, headers={"If-Match": weak})
    assert third.status_code == 200
    code, _ = send(sandbox, "PATCH", {"description": "x"}, If_Match=second.headers["ETag"])
    assert code == 409


def test_data_of_a_secret_that_others_replaced_is_not_replaced_unseen(sandbox: ApiSandbox) -> None:
    document, tag = read(sandbox, DB)
    new = {**plain(document), "type": "dictionary", "data": {"password": "planted-two"}}
    assert send(sandbox, "PATCH", {"data": {"password": "planted-one"}}, DB)[0] == 200
    code, answer = send(sandbox, "PUT", new, DB, If_Match=tag)
    assert (code, answer["details"]) == (409, {"yours": "", "theirs": ""})
    assert (
        send(sandbox, "PUT", {**plain(document), "type": "dictionary", "tags": {"a": "b"}}, DB, If_Match=tag)[0] == 200
    )
    assert send(sandbox, "PUT", new, DB, If_Match="*")[0] == 200
    assert "planted-two" in text(sandbox, "access.yaml")


@pytest.mark.parametrize("tag", ['"x"', "x", '"a", "b"', "", "*, *"])
def test_what_is_no_tag_of_a_resource_is_refused(sandbox: ApiSandbox, tag: str) -> None:
    code, answer = send(sandbox, "PATCH", {"description": "new"}, If_Match=tag)
    assert (code, "If-Match is the ETag of one read" in answer["message"]) == (400, True)


def test_a_tag_of_a_manifest_that_never_was_is_a_conflict(sandbox: ApiSandbox) -> None:
    code, _ = send(sandbox, "PATCH", {"description": "new"}, If_Match=f'"{"0" * 32}-{"0" * 24}"')
    assert code == 409


def test_a_changed_status_is_no_changed_manifest(sandbox: ApiSandbox) -> None:
    document, tag = read(sandbox)
    assert sandbox.client().request("POST", f"{WEB}/-suspend", json={"reason": "a test"}).status_code == 200
    assert read(sandbox)[1] != tag
    assert send(sandbox, "PUT", {**plain(document), "description": "new"}, If_Match=tag)[0] == 200
