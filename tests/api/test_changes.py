"""Changes through the API: commits in the source, refusals that leave it alone, other writers, repeated requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api import commits
from tests.api.conftest import FILES
from tests.support.api import ORG, READER_PEER, ApiSite, api_site
from tests.support.git import HttpsServer
from tests.support.sandbox import workload

WEB = f"{ORG}/gvc/shop/workload/web"
GVC_WORKLOADS = f"{ORG}/gvc/shop/workload"
COMMENTED = FILES["shop/web.yaml"].replace("type: standard", "type: standard  # for now")  # type: ignore[union-attr,arg-type]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ApiSite]:
    """A site of its own, whose Git is written."""
    with api_site(tmp_path, {**FILES, "shop/web.yaml": COMMENTED}) as made:
        yield made


def send(site: ApiSite, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and body of a request by a superuser."""
    answer = site.client().request(method, path, json=body, headers=headers)
    return answer.status_code, answer.json()


def history(site: ApiSite) -> list[str]:
    """Subjects of the branch, newest first."""
    return site.repo.git("log", "--format=%s", "main").splitlines()


def file(site: ApiSite, path: str) -> str:
    """A file at the tip of the branch."""
    return site.repo.git("show", f"main:{path}")


def test_a_patch_changes_one_line_and_names_the_caller(site: ApiSite) -> None:
    before = file(site, "shop/web.yaml")
    code, answer = send(site, "PATCH", WEB, {"tags": {"tier": "front"}})
    assert code == 200, answer
    assert answer["tags"] == {"team": "web", "tier": "front"}
    assert answer["change"]["files"] == ["shop/web.yaml"]
    after = file(site, "shop/web.yaml")
    assert [line for line in after.splitlines() if line not in before.splitlines()] == [
        "tags: {team: web, tier: front}"
    ]
    assert "# for now" in after
    commit = site.repo.git("log", "-1", "--format=%an <%ae>%n%cn%n%s%n%b", "main").splitlines()
    assert commit[:3] == ["root <root@user.acme>", "reconciler", "Update workload/shop/web"]
    assert "Request-Id: " in "\n".join(commit)
    assert answer["change"]["commit"] == site.repo.git("rev-parse", "main").strip()
    assert site.run("apply").returncode == 0
    assert site.client().get(WEB)["tags"] == {"team": "web", "tier": "front"}


def test_the_answer_has_the_status_before_the_change_also_if_it_is_applied_at_once(
    site: ApiSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write = site.client().get(WEB)["status"]["revision"], commits.write_changes

    def write_and_apply(*args: Any, **options: Any) -> Any:
        written = write(*args, **options)
        assert site.run("apply").returncode == 0
        return written

    monkeypatch.setattr(commits, "write_changes", write_and_apply)
    code, answer = send(site, "PATCH", WEB, {"tags": {"tier": "front"}})
    assert (code, answer["status"]["revision"]) == (200, before)
    assert site.client().get(WEB)["status"]["revision"] != before
    code, answer = send(site, "POST", GVC_WORKLOADS, {"name": "new", "spec": answer["spec"]})
    assert (code, "status" in answer) == (201, False)
    assert send(site, "DELETE", f"{GVC_WORKLOADS}/new")[0] == 202


def test_what_was_read_can_be_put_back(site: ApiSite) -> None:
    document = site.client().get(WEB)
    code, answer = send(site, "PUT", WEB, document)
    assert (code, answer["change"]) == (200, None)
    document["spec"]["containers"][0]["image"] = "/org/acme/image/web:2"
    code, answer = send(site, "PUT", WEB, document)
    assert code == 200, answer
    assert "image: /org/acme/image/web:2" in file(site, "shop/web.yaml")
    assert "cpu" not in file(site, "shop/web.yaml")
    assert len(history(site)) == 2


def test_a_change_counts_from_what_is_in_git_and_not_applied_yet(site: ApiSite) -> None:
    assert send(site, "PATCH", WEB, {"tags": {"tier": "front"}, "description": "New"})[0] == 200
    code, answer = send(site, "PATCH", WEB, {"description": "Newer"})
    assert (code, answer["tags"], answer["description"]) == (200, {"team": "web", "tier": "front"}, "Newer")
    code, answer = send(site, "PATCH", WEB, {"tags": {"tier": None}, "description": ""})
    assert (code, answer["tags"]) == (200, {"team": "web"})
    assert "tier" not in file(site, "shop/web.yaml")
    assert len(history(site)) == 4


def test_what_a_client_saw_does_not_silently_lose_to_a_newer_commit(site: ApiSite) -> None:
    document = site.client().get(WEB)
    changed = {**document, "tags": {"team": "web", "tier": "front"}}
    assert send(site, "PUT", WEB, changed)[0] == 200
    code, answer = send(site, "PUT", WEB, document)
    assert (code, "tier: front" in answer["details"]["theirs"]) == (409, True)
    assert site.run("apply").returncode == 0
    code, answer = send(site, "PUT", WEB, document)
    assert (code, "tier: front" in answer["details"]["theirs"]) == (409, True)
    assert send(site, "PUT", WEB, document, **{"If-Match": "*"})[0] == 200
    assert "tier" not in file(site, "shop/web.yaml")


def test_a_dry_run_shows_the_change_and_writes_nothing(site: ApiSite) -> None:
    code, answer = send(site, "PATCH", f"{WEB}?dryRun=true", {"description": "The page"})
    assert code == 200
    assert "+description: The page" in answer["change"]["diff"]
    assert answer["change"]["commit"] is None
    assert [step["action"] for step in answer["change"]["plan"]["steps"]] == ["update", "update"]
    assert len(history(site)) == 1


def test_a_resource_is_created_and_deleted(site: ApiSite) -> None:
    body = {"name": "new", "spec": {"type": "standard", "containers": [{"name": "main", "image": "//image/new:1"}]}}
    code, answer = send(site, "POST", GVC_WORKLOADS, body)
    assert code == 201, answer
    assert answer["change"]["files"] == ["shop/workload/new.yaml"]
    assert site.run("apply").returncode == 0
    place = f"{GVC_WORKLOADS}/new"
    assert site.client().get(place)["name"] == "new"
    assert send(site, "POST", GVC_WORKLOADS, body)[0] == 409
    assert send(site, "DELETE", place)[0] == 202
    assert "new.yaml" not in site.repo.git("ls-tree", "-r", "--name-only", "main")
    assert site.run("apply").returncode == 0
    assert site.client().request("GET", place).status_code == 404
    assert history(site)[:2] == ["Delete workload/shop/new", "Create workload/shop/new"]


def test_a_document_among_others_is_deleted_alone(site: ApiSite) -> None:
    assert send(site, "DELETE", f"{ORG}/policy/web-edits")[0] == 202
    text = file(site, "access.yaml")
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
    site: ApiSite, method: str, path: str, body: Any, code: int, message: str
) -> None:
    found, answer = send(site, method, path, body)
    assert (found, answer["message"][: len(message)]) == (code, message), answer
    assert len(history(site)) == 1


def test_a_gvc_goes_with_its_content(site: ApiSite) -> None:
    code, answer = send(site, "DELETE", f"{ORG}/gvc/shop")
    assert (code, answer["change"]["files"]) == (202, ["shop/api.yaml", "shop/gvc.yaml", "shop/web.yaml"])
    assert site.repo.git("ls-tree", "-r", "--name-only", "main").split() == ["access.yaml"]


def test_a_gvc_goes_after_members_whose_deletion_is_not_applied(site: ApiSite) -> None:
    assert send(site, "DELETE", f"{GVC_WORKLOADS}/api")[0] == 202
    code, answer = send(site, "DELETE", f"{ORG}/gvc/shop")
    assert (code, answer["change"]["files"]) == (202, ["shop/gvc.yaml", "shop/web.yaml"])


def test_a_gvc_gets_members_before_it_is_applied(site: ApiSite) -> None:
    assert (
        send(
            site,
            "POST",
            f"{ORG}/gvc",
            {"name": "new", "spec": {"staticPlacement": {"locationLinks": ["//location/here"]}}},
        )[0]
        == 201
    )
    code, answer = send(site, "POST", f"{ORG}/gvc/new/identity", {"name": "me"})
    assert (code, answer["change"]["files"]) == (201, ["new/identity/me.yaml"])


def test_volume_sets_go_only_with_force_and_what_is_protected_stays(tmp_path: Path) -> None:
    data = "kind: volumeset\nname: data\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
    guarded = workload("guarded", more='tags: {platform/protected: "true"}\n')
    with api_site(tmp_path, {**FILES, "shop/data.yaml": data, "shop/guarded.yaml": guarded}) as site:
        code, answer = send(site, "DELETE", f"{ORG}/gvc/shop")
        assert (code, answer["message"][:23]) == (400, "gvc/shop has volume set")
        code, answer = send(site, "DELETE", f"{ORG}/gvc/shop?force=true")
        assert (code, answer["message"][:36]) == (400, "workload/shop/guarded is protected: ")
        assert send(site, "DELETE", f"{GVC_WORKLOADS}/guarded")[0] == 400
        assert len(history(site)) == 1


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
        with api_site(tmp_path / "site", FILES, sources=[source]) as site:
            code, answer = send(site, "PATCH", WEB, {"tags": {"a": "1"}})
            assert code == 200, answer
            assert history(site)[0] == "Update workload/shop/web"
            site.repo.commit({"notes.txt": "by a person"})
            assert send(site, "PATCH", WEB, {"tags": {"b": "2"}})[0] == 200
            assert "token-of-the-forge" not in str(answer)
            text = file(site, "shop/web.yaml")
            assert ("a: " in text, "b: " in text) == (True, True)
            server.trouble = "cut"
            code, answer = send(site, "PATCH", WEB, {"tags": {"c": "3"}})
            assert code == 503
            assert "token-of-the-forge" not in str(answer)
            assert len(history(site)) == 4


def test_those_who_may_not_change_nothing(site: ApiSite) -> None:
    client = site.client(READER_PEER)
    for method, path in (("PUT", WEB), ("PATCH", WEB), ("DELETE", WEB), ("POST", GVC_WORKLOADS)):
        assert client.request(method, path, json={"name": "web"}).status_code == 403
    assert len(history(site)) == 1


def test_a_repeated_request_writes_once(site: ApiSite) -> None:
    key = {"Idempotency-Key": "4711"}
    first = send(site, "PATCH", WEB, {"tags": {"a": "1"}}, **key)
    again = send(site, "PATCH", WEB, {"tags": {"a": "1"}}, **key)
    assert again == first
    assert len(history(site)) == 2
    assert send(site, "PATCH", WEB, {"tags": {"a": "2"}}, **key)[0] == 409


def test_a_request_that_was_cut_off_is_found_by_its_commit(site: ApiSite) -> None:
    key = {"Idempotency-Key": "4712"}
    first = send(site, "PATCH", WEB, {"tags": {"a": "1"}}, **key)
    # The state after a crash between the commit and the answer.
    site.api.store._db.write("UPDATE answers SET status = NULL, body = NULL")
    code, answer = send(site, "PATCH", WEB, {"tags": {"a": "1"}}, **key)
    assert (code, answer["change"]["commit"]) == (200, first[1]["change"]["commit"])
    assert len(history(site)) == 2


def test_a_repetition_that_finds_the_commit_has_the_status_of_the_first(site: ApiSite) -> None:
    cases: list[tuple[str, str, Any, int]] = [
        ("POST", f"{ORG}/group", {"name": "again"}, 201),
        ("DELETE", WEB, None, 202),
    ]
    for method, path, content, expected in cases:
        key = {"Idempotency-Key": method}
        first = send(site, method, path, content, **key)
        assert first[0] == expected, first
        site.api.store._db.write("UPDATE answers SET status = NULL, body = NULL")
        code, answer = send(site, method, path, content, **key)
        assert (code, answer["change"]["commit"]) == (expected, first[1]["change"]["commit"])


def test_others_who_changed_the_same_field_are_not_overwritten(site: ApiSite) -> None:
    writer_tip: list[str] = []
    from reconciler.changes.commits import SourceWriter

    plain = SourceWriter.check

    def check_slowly(self: Any, commit: Any) -> Any:
        if not writer_tip:
            writer_tip.append(commit.parent)
            site.repo.commit({"shop/web.yaml": file(site, "shop/web.yaml").replace("team: web", "team: shop")})
        return plain(self, commit)

    SourceWriter.check = check_slowly  # type: ignore[method-assign]
    try:
        code, answer = send(site, "PATCH", WEB, {"tags": {"team": "page"}})
    finally:
        SourceWriter.check = plain  # type: ignore[method-assign]
    assert code == 409
    assert "team: page" in answer["details"]["yours"]
    assert "team: shop" in answer["details"]["theirs"]


def test_a_branch_for_a_review(tmp_path: Path) -> None:
    with api_site(tmp_path, FILES, api={"writes": "branch"}) as site:
        code, answer = send(site, "PATCH", WEB, {"tags": {"a": "1"}})
        assert code == 200
        branch = answer["change"]["branch"]
        assert branch.startswith("reconciler/change-")
        assert "a:" in site.repo.git("show", f"{branch}:shop/web.yaml")
        assert len(history(site)) == 1


def test_the_last_manifest_of_a_source_is_not_deleted(tmp_path: Path) -> None:
    """The answer is no 503: clients repeat those."""
    with api_site(tmp_path, {"group.yaml": "kind: group\nname: ops\n"}) as site:
        code, answer = send(site, "DELETE", f"{ORG}/group/ops", None)
        assert (code, "holds no manifest below" in answer["message"]) == (409, True)
        assert len(history(site)) == 1


def test_settings_can_refuse_changes(tmp_path: Path) -> None:
    with api_site(tmp_path, FILES, api={"writes": "refuse"}) as site:
        assert send(site, "PATCH", WEB, {"tags": {"a": "1"}})[0] == 403


def test_no_answer_to_a_change_shows_a_secret(site: ApiSite) -> None:
    for path, body in (
        (f"{ORG}/secret/db?dryRun=true", {"description": "The database"}),
        (f"{ORG}/secret/db", {"data": {"password": "hunter3-hunter3"}}),
        (f"{ORG}/policy/web-edits?dryRun=true", {"description": "For the web team"}),
    ):
        answer = site.client().request("PATCH", path, json=body)
        assert answer.status_code == 200, answer.text
        assert "hunter" not in answer.text
    assert "hunter3-hunter3" in file(site, "access.yaml")
    assert site.run("apply").returncode == 0
    assert site.client().get(f"{ORG}/secret/db/-reveal")["data"] == {"password": "hunter3-hunter3"}
    audit = site.client().request("GET", f"{ORG}/-audit").text
    assert "hunter" not in audit
    body = {"data": {"password": "hunter4-hunter4"}, "type": "nonsense"}
    refused = site.client().request("PATCH", f"{ORG}/secret/db", json=body)
    assert refused.status_code == 400
    assert "hunter" not in refused.text


def test_the_members_of_a_built_in_group_change_as_its_manifest_does(site: ApiSite) -> None:
    """It exists without a manifest, so the first change creates one. Nothing else that is built in changes."""
    send(site, "POST", f"{ORG}/serviceaccount", {"name": "ops"})
    assert site.run("apply").returncode == 0
    group, link = f"{ORG}/group/superusers", f"{ORG}/serviceaccount/ops"
    code, answer = send(site, "PATCH", group, {"$add/memberLinks": [link]})
    assert (code, answer["memberLinks"]) == (200, [link])
    assert file(site, "group/superusers.yaml")
    assert site.run("apply").returncode == 0
    found = send(site, "GET", group)[1]
    assert (found["memberLinks"], found["origin"]) == ([link], "builtin")
    code, answer = send(site, "PATCH", group, {"$remove/memberLinks": [link]})
    assert (code, answer["memberLinks"]) == (200, [])
    assert send(site, "PUT", f"{ORG}/group/viewers", {"memberLinks": [link]})[0] == 200
    for method, path in (
        ("DELETE", "group/viewers"),
        ("PATCH", "policy/superusers-gvc"),
        ("PUT", "auditctx/platform"),
        ("DELETE", "policy/viewers-gvc"),
    ):
        code, answer = send(site, method, f"{ORG}/{path}", None if method == "DELETE" else {"description": "x"})
        assert (code, "is built in" in answer["message"]) == (400, True), path


def test_who_may_only_edit_groups_changes_no_built_in_one(site: ApiSite) -> None:
    """They could give themselves everything by it."""
    binding = {"permissions": ["edit"], "principalLinks": [f"{ORG}/serviceaccount/ci"]}
    policy = {"name": "group-edits", "targetKind": "group", "target": "all", "bindings": [binding]}
    views = {"permissions": ["view"], "principalLinks": [f"{ORG}/serviceaccount/ci"]}
    members = {"name": "members", "targetKind": "serviceaccount", "target": "all", "bindings": [views]}
    for new in (policy, members):
        assert send(site, "POST", f"{ORG}/policy", new)[0] == 201
    assert site.run("apply").returncode == 0
    key = send(site, "POST", f"{ORG}/serviceaccount/ci/-key", {})[1]["key"]
    change = {"json": {"$add/memberLinks": [f"{ORG}/serviceaccount/ci"]}, "headers": {"Authorization": f"Bearer {key}"}}
    for group, code in (("superusers", 403), ("viewers", 403), ("web", 200)):
        answer = site.client(None).request("PATCH", f"{ORG}/group/{group}", **change)
        assert answer.status_code == code, (group, answer.text)


def test_changes_of_single_items_lose_none(site: ApiSite) -> None:
    """Each counts from the newest commit, also from one that is not applied yet."""
    for name in ("A", "B"):
        change = {"spec": {"$add/containers": [{"name": "main", "$add/env": [{"name": name, "value": "1"}]}]}}
        assert send(site, "PATCH", WEB, change)[0] == 200
    change = {"spec": {"$add/containers": [{"name": "main", "$remove/env": ["A"]}]}}
    code, refused = send(site, "PATCH", WEB, {"$add/tags": ["a"]})
    assert (code, refused["details"][0]["rule"]) == (400, "unknown-field")
    code, answer = send(site, "PATCH", WEB, change)
    assert code == 200, answer
    assert answer["spec"]["containers"][0]["env"] == [{"name": "B", "value": "1"}]
