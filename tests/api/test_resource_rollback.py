"""A resource goes back to a version of its manifest: by the API, the page and the command, with its plan first."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reconciler.api.service import Api
from reconciler.settings import load_settings
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox

WEB = f"{ORG}/gvc/shop/workload/web/-rollback"
PAGE = "/ui/rollback/workload/shop/web"
ACCESS = """
---
kind: serviceaccount
name: editor
---
kind: serviceaccount
name: blind
---
kind: serviceaccount
name: viewer
---
kind: group
name: viewers
memberLinks: [//serviceaccount/viewer]
---
kind: policy
name: editor-edits-web
targetKind: workload
targetLinks: [//gvc/shop/workload/web]
bindings: [{permissions: [edit], principalLinks: [//serviceaccount/editor]}]
"""
FIRST = "# kept since the first version\n" + FILES["shop/web.yaml"].replace("# for now", "# as it was")
SECOND = FILES["shop/web.yaml"].replace("web:1.0", "web:2.0")
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(name="shop")
def shop_with_versions(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A workload with three versions, and another one that changed after the first of them."""
    files = FILES | {"access.yaml": FILES["access.yaml"] + ACCESS, "shop/web.yaml": FIRST}
    with api_sandbox(tmp_path, files) as sandbox:
        for version in (2, 3):
            text = FILES["shop/web.yaml"].replace("web:1.0", f"web:{version}.0")
            api = FILES["shop/api.yaml"].replace("api:1.0", f"api:{version}.0")
            sandbox.repo.commit({"shop/web.yaml": text, "shop/api.yaml": api}, f"Version {version} {SCRIPT} \u202e")
            assert sandbox.run("apply").returncode == 0
        yield sandbox


def commits(sandbox: ApiSandbox) -> list[str]:
    """The commits that changed the workload, newest first."""
    return sandbox.repo.git("log", "--format=%H", "main", "--", "shop/web.yaml").split()


def read(sandbox: ApiSandbox, path: str = "shop/web.yaml") -> str:
    """A file at the tip of the branch."""
    return f"{sandbox.repo.git('show', f'main:{path}').rstrip()}\n"


def send(sandbox: ApiSandbox, body: dict[str, Any], path: str = WEB, account: str = "") -> httpx2.Response:
    """The answer to a request to roll back."""
    key = sandbox.api.store.add_key(account, "", "test", None)[1] if account else ""
    client = sandbox.client(None) if account else sandbox.client()
    return client.request("POST", path, json=body, headers={"Authorization": key} if account else {})


def test_a_manifest_comes_back_with_its_comments_and_other_resources_stay(shop: ApiSandbox) -> None:
    first = commits(shop)[-1]
    answer = send(shop, {"revision": first, "reason": "incident 12\n\nRequest-Id: of-others"})
    assert answer.status_code == 200, answer.text
    assert read(shop) == FIRST
    assert "api:3.0" in read(shop, "shop/api.yaml")
    message = shop.repo.git("log", "-1", "--format=%B", "main").splitlines()
    assert message[0] == f"Roll workload/shop/web back to {first[:12]}"
    assert message[2].startswith("incident 12")
    assert len([line for line in message if line.startswith("Request-Id: ")]) == 1
    assert f"{commits(shop)[0][:12]} on main" in answer.json()["message"]
    assert shop.run("apply").returncode == 0
    assert "web:1.0" in shop.run("describe", "workload/shop/web").stdout
    again = send(shop, {"revision": first})
    assert (again.status_code, again.json()["change"]) == (200, None)


def test_without_a_revision_it_is_the_version_before(shop: ApiSandbox) -> None:
    assert send(shop, {}).status_code == 200
    assert "web:2.0" in read(shop)


def test_a_dry_run_changes_nothing_and_shows_the_plan_and_the_file(shop: ApiSandbox) -> None:
    before = commits(shop)
    answer = send(shop, {"revision": before[-1]}, f"{WEB}?dryRun=true").json()
    assert "would be as in" in answer["message"]
    assert "1 to update" in answer["message"]
    assert re.search("^-.*web:3.0", answer["change"]["diff"], re.MULTILINE)
    assert {step["key"] for step in answer["change"]["plan"]["steps"]} == {"workload/shop/web"}
    assert commits(shop) == before


def test_a_plan_that_changed_since_is_shown_again(shop: ApiSandbox) -> None:
    first = commits(shop)[-1]
    digest = send(shop, {"revision": first}, f"{WEB}?dryRun=true").json()["change"]["plan"]["digest"]
    shop.repo.commit({"shop/api.yaml": FILES["shop/api.yaml"].replace("api:1.0", "api:9.0")})
    stale = send(shop, {"revision": first, "digest": digest})
    assert (stale.status_code, "show the difference again" in stale.text) == (409, True)
    assert "web:3.0" in read(shop)


def test_the_permissions_are_those_of_a_change_of_the_manifest(shop: ApiSandbox) -> None:
    first = commits(shop)[-1]
    for account, status in (("viewer", 403), ("blind", 403), ("editor", 200)):
        assert send(shop, {"revision": first}, account=account).status_code == status, account
    branch = send(shop, {"revision": "main~1"}, account="editor")
    assert (branch.status_code, "name the commit by its id" in branch.text) == (403, True)


@pytest.mark.parametrize(
    ("revision", "status", "words"),
    [
        ("nowhere", 404, "is not in the repository"),
        (":/Version", 409, "is no commit"),
        ("main^{/Version}", 409, "is no commit"),
        ("other", 409, "is no commit of the branch main"),
        ("0" * 40, 404, "not in the repository"),
    ],
)
def test_only_a_commit_of_the_branch_can_come_back(shop: ApiSandbox, revision: str, status: int, words: str) -> None:
    shop.repo.git("branch", "other", "main")
    shop.repo.commit({"shop/web.yaml": FIRST}, "Not merged", branch="other")
    answer = send(shop, {"revision": revision})
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_a_version_that_breaks_a_rule_of_today_is_refused(tmp_path: Path) -> None:
    linked = FILES["shop/web.yaml"].replace("tags:", "description: old\ntags:")
    broken = linked.replace("image: //image/web:1.0", "image: //image/web:1.0\n      cpu: 5")
    with api_sandbox(tmp_path, FILES) as sandbox:
        sandbox.repo.commit({"shop/web.yaml": broken})
        sandbox.repo.commit({"shop/web.yaml": linked})
        assert sandbox.run("apply").returncode == 0
        answer = send(sandbox, {"revision": "main~1"})
        assert answer.status_code in (400, 409)
        assert "that can be read" in answer.text or "refused" in answer.text
        assert read(sandbox) == linked


def test_a_document_among_others_comes_back_alone(tmp_path: Path) -> None:
    two = f"{FILES['shop/api.yaml']}---\n{FILES['shop/web.yaml']}"
    with api_sandbox(
        tmp_path, {**FILES, "shop/api.yaml": two, "shop/web.yaml": ""} | {"shop/web.yaml": "# empty\n"}
    ) as box:
        box.repo.commit({"shop/api.yaml": two.replace("api:1.0", "api:2.0").replace("web:1.0", "web:2.0")})
        assert box.run("apply").returncode == 0
        assert send(box, {}).status_code == 200
        assert read(box, "shop/api.yaml") == two.replace("api:1.0", "api:2.0")


def test_an_item_of_a_list_in_json_comes_back_by_its_values(tmp_path: Path) -> None:
    two = '{"kind": "group", "name": "two", "description": "x"}'
    text = f'[{{"kind": "group", "name": "one", "description": "%s"}}, {two}]\n'
    with api_sandbox(tmp_path, {**FILES, "groups.json": text % "old"}) as sandbox:
        sandbox.repo.commit({"groups.json": (text % "new").replace('"x"', '"y"')})
        assert sandbox.run("apply").returncode == 0
        assert send(sandbox, {}, f"{ORG}/group/one/-rollback").status_code == 200
        assert read(sandbox, "groups.json") == (text % "old").replace('"x"', '"y"')


def test_a_secret_is_not_rolled_back_by_itself(shop: ApiSandbox) -> None:
    answer = send(shop, {"revision": commits(shop)[-1]}, f"{ORG}/secret/db/-rollback")
    assert (answer.status_code, "is not rolled back by itself" in answer.text) == (409, True)
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("how", ["read-only", "refused"])
def test_where_nothing_can_be_written_the_way_in_git_is_named(tmp_path: Path, how: str) -> None:
    settings = {"api": {"writes": "refuse"}} if how == "refused" else {}
    with api_sandbox(tmp_path, FILES, **settings) as sandbox:
        sandbox.repo.commit({"shop/web.yaml": FIRST})
        assert sandbox.run("apply").returncode == 0
        if how == "read-only":
            sandbox.configure(sources=[sandbox.source(readOnly=True)])
            sandbox.api.close()
            sandbox.api = Api(load_settings(sandbox.settings_file), sandbox.clock, lambda: True)
        first = commits(sandbox)[-1]
        way = f"git restore --source={first} -- shop/web.yaml"
        answer = send(sandbox, {"revision": first})
        assert answer.status_code in (403, 409)
        assert way in answer.text
        shown = Browser(sandbox).log_in().get(f"{PAGE}?revision={first}", answer.status_code)
        assert way in html.unescape(shown)
        assert "-rollback" not in shown
        if how == "read-only":
            done = sandbox.run("rollback", "workload/shop/web", first)
            assert (done.returncode, way in done.stderr) == (1, True)


def test_with_reviews_it_becomes_a_branch(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES, api={"writes": "branch"}) as sandbox:
        sandbox.repo.commit({"shop/web.yaml": SECOND})
        assert sandbox.run("apply").returncode == 0
        branch = send(sandbox, {}).json()["change"]["branch"]
        assert sandbox.repo.git("show", f"{branch}:shop/web.yaml") == FILES["shop/web.yaml"].rstrip()
        assert read(sandbox) == SECOND


def test_the_page_shows_the_plan_and_its_form_does_it(shop: ApiSandbox) -> None:
    browser, first = Browser(shop).log_in(), commits(shop)[-1]
    versions = browser.get("/ui/resource/workload/shop/web")
    assert f'<a href="{PAGE}?revision={first}">' in versions
    path = f"{PAGE}?revision={first}"
    shown = browser.get(path)
    assert "1 to update" in shown
    assert "spec.containers[main].image" in shown
    assert "+# kept since the first version" in shown
    assert f"reconciler rollback workload/shop/web {first[:12]}" in shown
    assert read(shop) != FIRST
    form = browser.form(path, "-rollback")
    answer = browser.send(form, reason=f"{SCRIPT} \u202e back")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/resource/workload/shop/web")
    assert "is as in" in browser.get("/ui/resource/workload/shop/web")
    assert read(shop) == FIRST
    assert "already" in browser.get(path)
    assert "\\u202e" in shop.repo.git("log", "-1", "--format=%B", "main")


def test_a_hostile_version_does_nothing_on_the_page(shop: ApiSandbox) -> None:
    middle = commits(shop)[1]
    shown = Browser(shop).log_in().get(f"{PAGE}?revision={middle}")
    assert SCRIPT not in shown
    assert html.escape(SCRIPT) in shown
    assert "\u202e" not in shown
    assert 'role="alert"' in Browser(shop).log_in().get(f"{PAGE}?revision={SCRIPT}", 404)


def test_who_may_not_edit_is_not_offered_it_and_is_refused(shop: ApiSandbox) -> None:
    viewer, first = Browser(shop).log_in_as("viewer"), commits(shop)[-1]
    assert PAGE not in viewer.get("/ui/resource/workload/shop/web")
    viewer.get(f"{PAGE}?revision={first}", 403)
    editor = Browser(shop).log_in_as("editor")
    assert PAGE in editor.get("/ui/resource/workload/shop/web")
    # Subjects of commits may name other resources.
    assert "Version 2" not in editor.get(f"{PAGE}?revision={commits(shop)[1]}")


def test_the_command_does_the_same(shop: ApiSandbox) -> None:
    first = commits(shop)[-1]
    plan = shop.run("rollback", "workload/shop/web", first[:10], "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert re.search("web:3.0.* → .*web:1.0", plan.stdout)
    assert "nothing was committed" in plan.stdout
    done = shop.run("rollback", "workload", "shop/web", "--previous", "--reason", "incident 12")
    assert done.returncode == 0, done.stderr
    assert "web:2.0" in read(shop)
    assert "incident 12" in shop.repo.git("log", "-1", "--format=%b", "main")
    assert shop.run("rollback", "workload/shop/web", first, "--force").returncode == 2
    assert shop.run("rollback", "main", "HEAD~1", "--dry-run").returncode == 2
    unknown = shop.run("rollback", "workload/shop/nix", first)
    assert (unknown.returncode, "workload/shop/nix" in unknown.stderr) == (1, True)
