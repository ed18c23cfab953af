"""Changes through the API: commits in the source, refusals that leave it alone, other writers, repeated requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api import commits
from tests.api.conftest import FILES
from tests.support.api import ORG, READER_PEER, ApiSandbox, api_sandbox
from tests.support.git import HttpsServer
from tests.support.sandbox import workload

WEB = f"{ORG}/gvc/shop/workload/web"
GVC_WORKLOADS = f"{ORG}/gvc/shop/workload"
COMMENTED = FILES["shop/web.yaml"].replace("type: standard", "type: standard  # for now")  # type: ignore[union-attr,arg-type]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox of its own, whose Git is written."""
    with api_sandbox(tmp_path, {**FILES, "shop/web.yaml": COMMENTED}) as made:
        yield made


def send(sandbox: ApiSandbox, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and body of a request by a superuser."""
    answer = sandbox.client().request(method, path, json=body, headers=headers)
    return answer.status_code, answer.json()


def history(sandbox: ApiSandbox) -> list[str]:
    """Subjects of the branch, newest first."""
    return sandbox.repo.git("log", "--format=%s", "main").splitlines()


def file(sandbox: ApiSandbox, path: str) -> str:
    """A file at the tip of the branch."""
    return sandbox.repo.git("show", f"main:{path}")


def test_a_patch_changes_one_line_and_names_the_caller(sandbox: ApiSandbox) -> None:
    before = file(sandbox, "shop/web.yaml")
    code, answer = send(sandbox, "PATCH", WEB, {"tags": {"tier": "front"}})
    assert code == 200, answer
    assert answer["tags"] == {"team": "web", "tier": "front"}
    assert answer["change"]["files"] == ["shop/web.yaml"]
    after = file(sandbox, "shop/web.yaml")
    assert [line for line in after.splitlines() if line not in before.splitlines()] == [
        "tags: {team: web, tier: front}"
    ]
    assert "# for now" in after
    commit = sandbox.repo.git("log", "-1", "--format=%an <%ae>%n%cn%n%s%n%b", "main").splitlines()
    assert commit[:3] == ["root <root@user.acme>", "reconciler", "Update workload/shop/web"]
    assert "Request-Id: " in "\n".join(commit)
    assert answer["change"]["commit"] == sandbox.repo.git("rev-parse", "main").strip()
    assert sandbox.run("apply").returncode == 0
    assert sandbox.client().get(WEB)["tags"] == {"team": "web", "tier": "front"}


def test_the_answer_has_the_status_before_the_change_also_if_it_is_applied_at_once(
    sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write = sandbox.client().get(WEB)["status"]["revision"], commits.write_changes

    def write_and_apply(*args: Any, **options: Any) -> Any:
        written = write(*args, **options)
        assert sandbox.run("apply").returncode == 0
        return written

    monkeypatch.setattr(commits, "write_changes", write_and_apply)
    code, answer = send(sandbox, "PATCH", WEB, {"tags": {"tier": "front"}})
    assert (code, answer["status"]["revision"]) == (200, before)
    assert sandbox.client().get(WEB)["status"]["revision"] != before
    code, answer = send(sandbox, "POST", GVC_WORKLOADS, {"name": "new", "spec": answer["spec"]})
    assert (code, "status" in answer) == (201, False)
    assert send(sandbox, "DELETE", f"{GVC_WORKLOADS}/new")[0] == 202


def test_what_was_read_can_be_put_back(sandbox: ApiSandbox) -> None:
    document = sandbox.client().get(WEB)
    code, answer = send(sandbox, "PUT", WEB, document)
    assert (code, answer["change"]) == (200, None)
    document["spec"]["containers"][0]["image"] = "/org/acme/image/web:2"
    code, answer = send(sandbox, "PUT", WEB, document)
    assert code == 200, answer
    assert "image: /org/acme/image/web:2" in file(sandbox, "shop/web.yaml")
    assert "cpu" not in file(sandbox, "shop/web.yaml")
    assert len(history(sandbox)) == 2


def test_a_change_counts_from_what_is_in_git_and_not_applied_yet(sandbox: ApiSandbox) -> None:
    assert send(sandbox, "PATCH", WEB, {"tags": {"tier": "front"}, "description": "New"})[0] == 200
    code, answer = send(sandbox, "PATCH", WEB, {"description": "Newer"})
    assert (code, answer["tags"], answer["description"]) == (200, {"team": "web", "tier": "front"}, "Newer")
    code, answer = send(sandbox, "PATCH", WEB, {"tags": {"tier": None}, "description": ""})
    assert (code, answer["tags"]) == (200, {"team": "web"})
    assert "tier" not in file(sandbox, "shop/web.yaml")
    assert len(history(sandbox)) == 4


def test_what_a_client_saw_does_not_silently_lose_to_a_newer_commit(sandbox: ApiSandbox) -> None:
    document = sandbox.client().get(WEB)
    changed = {**document, "tags": {"team": "web", "tier": "front"}}
    assert send(sandbox, "PUT", WEB, changed)[0] == 200
    code, answer = send(sandbox, "PUT", WEB, document)
    assert (code, "tier: front" in answer["details"]["theirs"]) == (409, True)
    assert sandbox.run("apply").returncode == 0
    code, answer = send(sandbox, "PUT", WEB, document)
    assert (code, "tier: front" in answer["details"]["theirs"]) == (409, True)
    assert send(sandbox, "PUT", WEB, document, **{"If-Match": "*"})[0] == 200
    assert "tier" not in file(sandbox, "shop/web.yaml")


def test_a_dry_run_shows_the_change_and_writes_nothing(sandbox: ApiSandbox) -> None:
    code, answer = send(sandbox, "PATCH", f"{WEB}?dryRun=true", {"description": "The page"})
    assert code == 200
    assert "+description: The page" in answer["change"]["diff"]
    assert answer["change"]["commit"] is None
    assert [step["action"] for step in answer["change"]["plan"]["steps"]] == ["update", "update"]
    assert len(history(sandbox)) == 1


def test_a_resource_is_created_and_deleted(sandbox: ApiSandbox) -> None:
    body = {"name": "new", "spec": {"type": "standard", "containers": [{"name": "main", "image": "//image/new:1"}]}}
    code, answer = send(sandbox, "POST", GVC_WORKLOADS, body)
    assert code == 201, answer
    assert answer["change"]["files"] == ["shop/workload/new.yaml"]
    assert sandbox.run("apply").returncode == 0
    path = f"{GVC_WORKLOADS}/new"
    assert sandbox.client().get(path)["name"] == "new"
    assert send(sandbox, "POST", GVC_WORKLOADS, body)[0] == 409
    assert send(sandbox, "DELETE", path)[0] == 202
    assert "new.yaml" not in sandbox.repo.git("ls-tree", "-r", "--name-only", "main")
    assert sandbox.run("apply").returncode == 0
    assert sandbox.client().request("GET", path).status_code == 404
    assert history(sandbox)[:2] == ["Delete workload/shop/new", "Create workload/shop/new"]


def test_a_document_among_others_is_deleted_alone(sandbox: ApiSandbox) -> None:
    assert send(sandbox, "DELETE", f"{ORG}/policy/web-edits")[0] == 202
    text = file(sandbox, "access.yaml")
    assert "web-edits" not in text
    assert "kind: secret" in text


REFUSED = [
    ("PATCH", WEB, {"spec": {"type": "nonsense"}}, 400, "the change is refused: shop/web.yaml:"),
    ("PATCH", WEB, {"spec": {"type": "stateful"}}, 405, "the change is refused: shop/web.yaml:"),
    ("PATCH", WEB, {"name": "other"}, 400, "name is 'web' in the path, and 'other' in the body"),
    ("PATCH", WEB, [], 400, "the body is a merge patch"),
    ("DELETE", f"{ORG}/group/web", None, 400, "the change is refused: access.yaml:"),
    (
        "POST",
        f"{ORG}/gvc/none/identity",
        {"name": "a"},
        400,
        "the change is refused: none/identity/a.yaml:3:6: identity/none/a refers to gvc/none",
    ),
    ("POST", GVC_WORKLOADS, {"name": "a"}, 400, "the change is refused: shop/workload/a.yaml:"),
    ("POST", GVC_WORKLOADS, {"name": "../../x"}, 400, "the name '../../x' is wrong"),
    ("PUT", f"{GVC_WORKLOADS}/none", {}, 404, "there is no workload/shop/none"),
]


@pytest.mark.parametrize(("method", "path", "body", "code", "message"), REFUSED)
def test_a_refused_change_leaves_git_alone(
    sandbox: ApiSandbox, method: str, path: str, body: Any, code: int, message: str
) -> None:
    found, answer = send(sandbox, method, path, body)
    assert (found, answer["message"][: len(message)]) == (code, message), answer
    assert len(history(sandbox)) == 1


def test_a_gvc_goes_with_its_content(sandbox: ApiSandbox) -> None:
    code, answer = send(sandbox, "DELETE", f"{ORG}/gvc/shop")
    assert (code, answer["change"]["files"]) == (202, ["shop/api.yaml", "shop/gvc.yaml", "shop/web.yaml"])
    assert sandbox.repo.git("ls-tree", "-r", "--name-only", "main").split() == ["access.yaml"]


def test_a_gvc_goes_after_members_whose_deletion_is_not_applied(sandbox: ApiSandbox) -> None:
    assert send(sandbox, "DELETE", f"{GVC_WORKLOADS}/api")[0] == 202
    code, answer = send(sandbox, "DELETE", f"{ORG}/gvc/shop")
    assert (code, answer["change"]["files"]) == (202, ["shop/gvc.yaml", "shop/web.yaml"])


def test_a_gvc_gets_members_before_it_is_applied(sandbox: ApiSandbox) -> None:
    assert (
        send(
            sandbox,
            "POST",
            f"{ORG}/gvc",
            {"name": "new", "spec": {"staticPlacement": {"locationLinks": ["//location/here"]}}},
        )[0]
        == 201
    )
    code, answer = send(sandbox, "POST", f"{ORG}/gvc/new/identity", {"name": "me"})
    assert (code, answer["change"]["files"]) == (201, ["new/identity/me.yaml"])


def test_volume_sets_go_only_with_force_and_what_is_protected_stays(tmp_path: Path) -> None:
    data = "kind: volumeset\nname: data\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
    guarded = workload("guarded", more='tags: {platform/protected: "true"}\n')
    with api_sandbox(tmp_path, {**FILES, "shop/data.yaml": data, "shop/guarded.yaml": guarded}) as sandbox:
        code, answer = send(sandbox, "DELETE", f"{ORG}/gvc/shop")
        assert (code, answer["message"][:23]) == (400, "gvc/shop has volume set")
        code, answer = send(sandbox, "DELETE", f"{ORG}/gvc/shop?force=true")
        assert (code, answer["message"][:36]) == (400, "workload/shop/guarded is protected: ")
        assert send(sandbox, "DELETE", f"{GVC_WORKLOADS}/guarded")[0] == 400
        assert len(history(sandbox)) == 1


def test_a_change_is_pushed_to_a_remote_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpsServer(tmp_path / "site", tmp_path, "token-of-the-forge") as server:
        monkeypatch.setenv("GIT_SSL_CAINFO", str(server.certificate))
        (tmp_path / "token").write_text("token-of-the-forge")
        source = {
            "name": "main",
            "url": server.url("main.git"),
            "branch": "main",
            "status": {"push": False},
            "credentials": {"tokenFile": str(tmp_path / "token")},
        }
        with api_sandbox(tmp_path / "site", FILES, sources=[source]) as sandbox:
            code, answer = send(sandbox, "PATCH", WEB, {"tags": {"a": "1"}})
            assert code == 200, answer
            assert history(sandbox)[0] == "Update workload/shop/web"
            sandbox.repo.commit({"notes.txt": "by a person"})
            assert send(sandbox, "PATCH", WEB, {"tags": {"b": "2"}})[0] == 200
            assert "token-of-the-forge" not in str(answer)
            text = file(sandbox, "shop/web.yaml")
            assert ("a: " in text, "b: " in text) == (True, True)
            server.trouble = "cut"
            code, answer = send(sandbox, "PATCH", WEB, {"tags": {"c": "3"}})
            assert code == 503
            assert "token-of-the-forge" not in str(answer)
            assert len(history(sandbox)) == 4


def test_those_who_may_not_change_nothing(sandbox: ApiSandbox) -> None:
    client = sandbox.client(READER_PEER)
    for method, path in (("PUT", WEB), ("PATCH", WEB), ("DELETE", WEB), ("POST", GVC_WORKLOADS)):
        assert client.request(method, path, json={"name": "web"}).status_code == 403
    assert len(history(sandbox)) == 1


def test_a_repeated_request_writes_once(sandbox: ApiSandbox) -> None:
    key = {"Idempotency-Key": "4711"}
    first = send(sandbox, "PATCH", WEB, {"tags": {"a": "1"}}, **key)
    again = send(sandbox, "PATCH", WEB, {"tags": {"a": "1"}}, **key)
    assert again == first
    assert len(history(sandbox)) == 2
    assert send(sandbox, "PATCH", WEB, {"tags": {"a": "2"}}, **key)[0] == 409


def test_a_request_that_was_cut_off_is_found_by_its_commit(sandbox: ApiSandbox) -> None:
    key = {"Idempotency-Key": "4712"}
    first = send(sandbox, "PATCH", WEB, {"tags": {"a": "1"}}, **key)
    # The state after a crash between the commit and the answer.
    sandbox.api.store._db.write("UPDATE answers SET status = NULL, body = NULL")
    code, answer = send(sandbox, "PATCH", WEB, {"tags": {"a": "1"}}, **key)
    assert (code, answer["change"]["commit"]) == (200, first[1]["change"]["commit"])
    assert len(history(sandbox)) == 2


def test_a_repetition_that_finds_the_commit_has_the_status_of_the_first(sandbox: ApiSandbox) -> None:
    cases: list[tuple[str, str, Any, int]] = [
        ("POST", f"{ORG}/group", {"name": "again"}, 201),
        ("DELETE", WEB, None, 202),
    ]
    for method, path, content, expected in cases:
        key = {"Idempotency-Key": method}
        first = send(sandbox, method, path, content, **key)
        assert first[0] == expected, first
        sandbox.api.store._db.write("UPDATE answers SET status = NULL, body = NULL")
        code, answer = send(sandbox, method, path, content, **key)
        assert (code, answer["change"]["commit"]) == (expected, first[1]["change"]["commit"])


def test_others_who_changed_the_same_field_are_not_overwritten(sandbox: ApiSandbox) -> None:
    writer_tip: list[str] = []
    from reconciler.changes.commits import SourceWriter

    plain = SourceWriter.check

    def check_slowly(self: Any, commit: Any) -> Any:
        if not writer_tip:
            writer_tip.append(commit.parent)
            sandbox.repo.commit({"shop/web.yaml": file(sandbox, "shop/web.yaml").replace("team: web", "team: shop")})
        return plain(self, commit)

    SourceWriter.check = check_slowly  # type: ignore[method-assign]
    try:
        code, answer = send(sandbox, "PATCH", WEB, {"tags": {"team": "page"}})
    finally:
        SourceWriter.check = plain  # type: ignore[method-assign]
    assert code == 409
    assert "team: page" in answer["details"]["yours"]
    assert "team: shop" in answer["details"]["theirs"]


def test_a_branch_for_a_review(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES, api={"writes": "branch"}) as sandbox:
        code, answer = send(sandbox, "PATCH", WEB, {"tags": {"a": "1"}})
        assert code == 200
        branch = answer["change"]["branch"]
        assert branch.startswith("reconciler/change-")
        assert "a:" in sandbox.repo.git("show", f"{branch}:shop/web.yaml")
        assert len(history(sandbox)) == 1


def test_the_last_manifest_of_a_source_is_not_deleted(tmp_path: Path) -> None:
    """The answer is no 503: clients repeat those."""
    with api_sandbox(tmp_path, {"group.yaml": "kind: group\nname: ops\n"}) as sandbox:
        code, answer = send(sandbox, "DELETE", f"{ORG}/group/ops", None)
        assert (code, "holds no manifest below" in answer["message"]) == (409, True)
        assert len(history(sandbox)) == 1


def test_settings_can_refuse_changes(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES, api={"writes": "refuse"}) as sandbox:
        assert send(sandbox, "PATCH", WEB, {"tags": {"a": "1"}})[0] == 403


def test_no_answer_to_a_change_shows_a_secret(sandbox: ApiSandbox) -> None:
    for path, body in (
        (f"{ORG}/secret/db?dryRun=true", {"description": "The database"}),
        (f"{ORG}/secret/db", {"data": {"password": "hunter3-hunter3"}}),
        (f"{ORG}/policy/web-edits?dryRun=true", {"description": "For the web team"}),
    ):
        answer = sandbox.client().request("PATCH", path, json=body)
        assert answer.status_code == 200, answer.text
        assert "hunter" not in answer.text
    assert "hunter3-hunter3" in file(sandbox, "access.yaml")
    assert sandbox.run("apply").returncode == 0
    assert sandbox.client().get(f"{ORG}/secret/db/-reveal")["data"] == {"password": "hunter3-hunter3"}
    audit = sandbox.client().request("GET", f"{ORG}/-audit").text
    assert "hunter" not in audit
    body = {"data": {"password": "hunter4-hunter4"}, "type": "nonsense"}
    refused = sandbox.client().request("PATCH", f"{ORG}/secret/db", json=body)
    assert refused.status_code == 400
    assert "hunter" not in refused.text


def test_the_members_of_a_built_in_group_change_as_its_manifest_does(sandbox: ApiSandbox) -> None:
    """It exists without a manifest, so the first change creates one. Nothing else that is built in changes."""
    send(sandbox, "POST", f"{ORG}/serviceaccount", {"name": "ops"})
    assert sandbox.run("apply").returncode == 0
    group, link = f"{ORG}/group/superusers", f"{ORG}/serviceaccount/ops"
    code, answer = send(sandbox, "PATCH", group, {"$add/memberLinks": [link]})
    assert (code, answer["memberLinks"]) == (200, [link])
    assert file(sandbox, "group/superusers.yaml")
    assert sandbox.run("apply").returncode == 0
    found = send(sandbox, "GET", group)[1]
    assert (found["memberLinks"], found["origin"]) == ([link], "builtin")
    code, answer = send(sandbox, "PATCH", group, {"$remove/memberLinks": [link]})
    assert (code, answer["memberLinks"]) == (200, [])
    assert send(sandbox, "PUT", f"{ORG}/group/viewers", {"memberLinks": [link]})[0] == 200
    for method, path in (
        ("DELETE", "group/viewers"),
        ("PATCH", "policy/superusers-gvc"),
        ("PUT", "auditctx/platform"),
        ("DELETE", "policy/viewers-gvc"),
    ):
        code, answer = send(sandbox, method, f"{ORG}/{path}", None if method == "DELETE" else {"description": "x"})
        assert (code, "is built in" in answer["message"]) == (400, True), path


def test_who_may_only_edit_groups_changes_no_built_in_one(sandbox: ApiSandbox) -> None:
    """They could give themselves everything by it."""
    binding = {"permissions": ["edit"], "principalLinks": [f"{ORG}/serviceaccount/ci"]}
    policy = {"name": "group-edits", "targetKind": "group", "target": "all", "bindings": [binding]}
    views = {"permissions": ["view"], "principalLinks": [f"{ORG}/serviceaccount/ci"]}
    members = {"name": "members", "targetKind": "serviceaccount", "target": "all", "bindings": [views]}
    for new in (policy, members):
        assert send(sandbox, "POST", f"{ORG}/policy", new)[0] == 201
    assert sandbox.run("apply").returncode == 0
    key = send(sandbox, "POST", f"{ORG}/serviceaccount/ci/-key", {})[1]["key"]
    change = {"json": {"$add/memberLinks": [f"{ORG}/serviceaccount/ci"]}, "headers": {"Authorization": f"Bearer {key}"}}
    for group, code in (("superusers", 403), ("viewers", 403), ("web", 200)):
        answer = sandbox.client(None).request("PATCH", f"{ORG}/group/{group}", **change)
        assert answer.status_code == code, (group, answer.text)


def test_changes_of_single_items_lose_none(sandbox: ApiSandbox) -> None:
    """Each counts from the newest commit, also from one that is not applied yet."""
    for name in ("A", "B"):
        change = {"spec": {"$add/containers": [{"name": "main", "$add/env": [{"name": name, "value": "1"}]}]}}
        assert send(sandbox, "PATCH", WEB, change)[0] == 200
    change = {"spec": {"$add/containers": [{"name": "main", "$remove/env": ["A"]}]}}
    code, refused = send(sandbox, "PATCH", WEB, {"$add/tags": ["a"]})
    assert (code, refused["details"][0]["rule"]) == (400, "unknown-field")
    code, answer = send(sandbox, "PATCH", WEB, change)
    assert code == 200, answer
    assert answer["spec"]["containers"][0]["env"] == [{"name": "B", "value": "1"}]
