"""Views of the page: versions, blame and differences of resources, plans, executions, volumes and logs."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.model.key import Key
from reconciler.planning.drift import Drift, DriftKind, encode_drift
from reconciler.planning.plan import ChangeClass, FieldChange
from reconciler.records.store import FILE, Records
from reconciler.records.tables.drift import DriftRow
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.support.api import ApiSandbox, api_sandbox
from tests.support.sandbox import workload

SCRIPT = "<script>alert(1)</script>"
BIDI = "a\u202eb\x07c"
WEB = "workload/shop/web"
WEB_PAGE = f"/ui/resource/{WEB}"
ACCESS = """
---
kind: serviceaccount
name: viewer
---
kind: serviceaccount
name: narrow
---
kind: group
name: viewers
memberLinks: [//serviceaccount/viewer]
---
kind: policy
name: narrow-views-web
targetKind: workload
targetLinks: [//gvc/shop/workload/web]
bindings: [{permissions: [view], principalLinks: [//serviceaccount/narrow]}]
"""
CRON = """kind: workload
name: job
spec:
  type: cron
  containers: [{name: main, image: //image/job:1}]
  job: {schedule: "30 4 * * 1"}
"""
DATA = """kind: volumeset
name: data
spec: {fileSystemType: ext4, initialCapacity: 10, performanceClass: general-purpose-ssd}
---
kind: workload
name: db
spec:
  type: stateful
  containers:
    - {name: main, image: //image/db:1, volumes: [{uri: "platform://volumeset/data", path: /data}]}
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox in which a workload has three versions, with authors and messages that are hostile to a page."""
    files = FILES | {"access.yaml": FILES["access.yaml"] + ACCESS, "shop/job.yaml": CRON, "shop/data.yaml": DATA}
    with api_sandbox(tmp_path_factory.mktemp("views"), files) as sandbox:
        for version, message in ((2, f"{SCRIPT} {BIDI} {'x' * 5_000}"), (3, "javascript:alert(1)")):
            image = FILES["shop/web.yaml"].replace("web:1.0", f"web:{version}.0")
            text = image.replace("team: web", f"team: web, note: '{SCRIPT}'")
            sandbox.repo.commit(
                {"shop/web.yaml": text, f"shop/other{version}.yaml": workload(f"other{version}")}, message
            )
            assert sandbox.run("apply").returncode == 0
        yield sandbox


@pytest.fixture(scope="module")
def admin(page: ApiSandbox) -> Browser:
    """The browser of a superuser."""
    return Browser(page).log_in()


def section(text: str, heading: str) -> str:
    """What is below ``heading``, up to the next one, without tags."""
    part = text.partition(f"<h2>{heading}</h2>")[2].partition("<h2")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", part))


def commits(page: ApiSandbox, key: str = WEB) -> list[str]:
    """The commits that changed ``key``, newest first."""
    return [one["commit"] for one in page.client().get(f"/org/acme/-versions?key={key}")["versions"]]


def test_a_resource_names_the_commit_of_each_field_as_the_command_does(page: ApiSandbox, admin: Browser) -> None:
    shown = admin.get(WEB_PAGE)
    assert shown.index("<h2>Desired") < shown.index("<h2>Observed") < shown.index("<h2>Versions")
    fields = page.client().get(f"/org/acme/-blame?key={WEB}")["fields"]
    newest, second, first = commits(page)
    by_path = {field["path"]: field["commit"] for field in fields}
    assert by_path["spec.containers[main].image"] == newest
    assert by_path["tags.note"] == second
    assert by_path["tags.team"] == by_path["spec.type"] == first
    desired = section(shown, "Desired")
    for field in fields:
        assert f"{field['path']} " in desired
        assert field["commit"][:12] in desired
    assert "reconciler blame workload/shop/web" in shown


def test_a_search_that_ends_early_is_marked(page: ApiSandbox) -> None:
    document = page.client().get(f"/org/acme/-blame?key={WEB}&commits=1")
    assert (document["commits"], document["whole"]) == (1, False)
    assert {field["commit"] for field in document["fields"]} == {commits(page)[0], None}


def test_two_versions_are_compared_field_by_field(page: ApiSandbox, admin: Browser) -> None:
    newest, _, first = commits(page)
    form = admin.form(WEB_PAGE, "/ui/diff/source/main")
    assert form.fields == {"key": WEB}
    shown = admin.get(f"{form.action}?key={WEB}&from={first}&to={newest}")
    assert "spec.containers[main].image" in shown
    assert "other2" not in shown
    assert "note" in shown
    command = re.findall(r"reconciler diff \S+ \S+ --source main --key \S+?(?=<)", shown)[0]
    assert "containers[main].image" in page.run(*command.split()[1:]).stdout
    everything = admin.get(f"/ui/diff/source/main?from={first}&to={newest}")
    assert "other2" in everything
    assert "no difference" in admin.get(f"/ui/diff/source/main?from={first}&to={first}")


def test_the_quick_difference_is_that_of_the_plan_between_the_two(page: ApiSandbox) -> None:
    newest, _, first = commits(page)
    quick = page.client().get(f"/org/acme/source/main/-diff?from={first}&to={newest}")
    import json

    whole = json.loads(page.run("diff", first, newest, "--source", "main", "-o", "json").stdout)

    def collect(plan: dict[str, list[dict[str, object]]]) -> dict[object, object]:
        return {step["key"]: (step["action"], [change["path"] for change in step["changes"]]) for step in plan["steps"]}  # type: ignore[attr-defined]

    assert collect(quick) == collect(whole)
    assert len(quick["steps"]) == 3


def test_a_moved_gvc_moves_what_is_in_its_folder(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES) as sandbox:
        sandbox.repo.commit({"shop/gvc.yaml": FILES["shop/gvc.yaml"].replace("name: shop", "name: store")}, "Rename it")
        steps = sandbox.client().get("/org/acme/source/main/-diff?from=main~1&to=main")["steps"]
    found = {(step["action"], step["key"]) for step in steps}
    assert {("delete", "workload/shop/web"), ("create", "workload/store/web"), ("create", "gvc/store")} <= found


def test_a_file_with_errors_is_named_and_left_out(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES) as sandbox:
        sandbox.repo.commit({"shop/api.yaml": "kind: workload\nname: api\nspec: {type: odd}\n"}, "Break it")
        text = (
            sandbox.client()
            .request("GET", "/org/acme/source/main/-diff?from=main~1&to=main", headers={"Accept": "text/plain"})
            .text
        )
        assert "Not compared: shop/api.yaml has errors" in text
        assert "shop/api.yaml has errors" in Browser(sandbox).log_in().get("/ui/diff/source/main?from=main~1&to=main")


def test_a_difference_has_only_what_the_caller_may_view(page: ApiSandbox) -> None:
    newest, second, first = commits(page)
    browser = Browser(page).log_in_as("narrow")
    shown = browser.get(f"/ui/diff/source/main?from={first}&to={newest}&key={WEB}")
    assert "containers[main].image" in shown
    assert "other" not in shown
    assert "javascript:alert(1)" not in shown, "a subject may name what the caller may not view"
    assert "javascript:alert(1)" not in browser.get(WEB_PAGE)
    for query in (
        f"from={first}&to={newest}",
        f"from={first}&to={newest}&key=workload/shop/other2",
        f"from={first}&to={newest}&key=secret/db",
        f"from={second}&to=main&key={WEB}",
    ):
        assert "no permission" in browser.get(f"/ui/diff/source/main?{query}", 403), query
    viewer = Browser(page).log_in_as("viewer").get(f"/ui/diff/source/main?from={first}&to={newest}")
    assert "other2" in viewer


@pytest.mark.parametrize("path", ["-blame", "-versions"])
def test_versions_need_the_permission_to_view_everything_in_the_api(page: ApiSandbox, path: str) -> None:
    key = page.client().request("POST", "/org/acme/serviceaccount/narrow/-key", json={}).json()["key"]
    refused = page.client(None).request("GET", f"/org/acme/{path}?key={WEB}", headers={"Authorization": key})
    assert refused.status_code == 403


def test_secrets_show_neither_in_blame_nor_in_differences(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES) as sandbox:
        changed = FILES["access.yaml"].replace("hunter2-hunter2", "hunter3-hunter3")
        sandbox.repo.commit({"access.yaml": changed}, "Rotate it")
        assert sandbox.run("apply").returncode == 0
        browser = Browser(sandbox).log_in()
        shown = browser.get("/ui/resource/secret/db") + browser.get("/ui/diff/source/main?from=HEAD~1&to=HEAD")
        assert "data.password" in shown
        assert "***" in shown
        assert "hunter" not in shown
        command = sandbox.run("blame", "secret/db").stdout + sandbox.run("versions", "secret/db").stdout
        assert "hunter" not in command


def test_hostile_commits_and_values_do_nothing(page: ApiSandbox, admin: Browser) -> None:
    newest, second, first = commits(page)
    for path in (WEB_PAGE, f"/ui/diff/source/main?from={first}&to={second}", f"/ui/plan/source/main?revision={second}"):
        shown = admin.get(path)
        assert SCRIPT not in shown, path
        assert "&lt;script&gt;" in shown, path
        assert not re.search("[\u202e\x07]", shown), path
        assert "x" * 4_500 not in shown, path
        assert 'href="javascript' not in shown, path
    for query in (f"from={SCRIPT}&to=x", f"from=HEAD&to={SCRIPT}"):
        assert SCRIPT not in admin.get(f"/ui/diff/source/main?{query}", 404)
    assert "no search in messages" in admin.get("/ui/plan/source/main?revision=:/a", 400)
    assert admin.request("GET", "/ui/diff/source/main?from=:/a&to=HEAD").status_code in (400, 404)
    assert newest != second


def test_a_difference_to_what_is_observed_is_beside_what_is_desired(page: ApiSandbox, admin: Browser) -> None:
    assert "checked" in section(admin.get(WEB_PAGE), "Observed")
    change = FieldChange("spec.containers[main].image", f"evil {SCRIPT}", "web:3", ChangeClass.NEW_VERSION)
    drift = Drift(Key.parse(WEB), "here", DriftKind.CHANGED, changes=(change,))
    records = Records.open(page.state / FILE)
    records.drifts.put_many([DriftRow(WEB, "here", "main", 1.7e9, encode_drift(drift))])
    shown = admin.get(WEB_PAGE)
    observed = section(shown, "Observed")
    assert "changed" in observed
    assert "evil &lt;script&gt;" in observed
    assert SCRIPT not in shown
    records.drifts.remove(WEB, "here")
    records.close()


def test_an_older_revision_is_planned_before_it_is_rolled_back_to(page: ApiSandbox, admin: Browser) -> None:
    first = commits(page)[-1]
    assert f"/ui/plan/source/main?revision={first}" in admin.get(WEB_PAGE)
    path = f"/ui/plan/source/main?revision={first}"
    form = admin.form(path, "/-rollback")
    assert form.fields["revision"] == first
    assert not Browser(page).log_in_as("viewer").has_form(path, "/-rollback")
    assert not admin.has_form("/ui/plan/source/main", "/-rollback")
    response = admin.send(form, reason="a broken release")
    assert (response.status_code, response.headers["location"]) == (303, "/ui/resource/source/main")
    assert "a broken release" in admin.get("/")
    assert page.run("resume", "main").returncode == 0


def test_a_plan_that_waits_is_refused_with_a_reason(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES | {"shop/data.yaml": DATA.partition("---\n")[0]}) as sandbox:
        sandbox.repo.commit({"shop/data.yaml": None}, "Drop the data")
        assert sandbox.run("apply").returncode == 1
        browser = Browser(sandbox).log_in()
        path = "/ui/plan/source/main"
        response = browser.send(browser.form(path, "/-refuse"), reason=f"we need it {SCRIPT}")
        assert (response.status_code, response.headers["location"]) == (303, path)
        shown = browser.get(path)
        assert "What waits was refused by user/root: we need it &lt;script&gt;" in shown
        assert SCRIPT not in shown
        assert not browser.has_form(path, "/-refuse")
        assert browser.has_form(path, "/-approve")
        entry = sandbox.client().get("/org/acme/-audit?limit=1000")["items"][-1]
        assert (entry["action"], entry["target"], entry["outcome"]) == ("POST", "/org/acme/-refuse", 303)
        summary = sandbox.client().get("/org/acme/-summary")
        assert summary["sources"][0]["approvals"] == []
        assert list(summary["sources"][0]["refusals"].values()) == [f"refused by user/root: we need it {SCRIPT}"]
        assert sandbox.run("apply").returncode == 1
        assert "ApprovalRefused" in sandbox.run("get", "volumeset").stdout
        assert browser.send(browser.form(path, "/-approve")).status_code == 303
        assert sandbox.run("apply").returncode == 0


def test_only_who_may_approve_may_refuse(page: ApiSandbox) -> None:
    key = page.client().request("POST", "/org/acme/serviceaccount/viewer/-key", json={}).json()["key"]
    refused = page.client(None).request(
        "POST", "/org/acme/-refuse", json={"digest": "0" * 32}, headers={"Authorization": key}
    )
    assert (refused.status_code, "`approve`" in refused.text) == (403, True)
    long = page.client().request("POST", "/org/acme/-refuse", json={"digest": "0" * 32, "reason": "x" * 501})
    assert long.status_code == 409


def test_a_cron_workload_shows_its_next_ten_times(page: ApiSandbox, admin: Browser) -> None:
    shown = admin.get("/ui/resource/workload/shop/job")
    times = re.findall(r'<li><time datetime="([^"]+)">(\w+) \d\d \w+ \d{4}, 04:30', shown)
    assert len(times) == 10
    assert {day for _, day in times} == {"Mon"}
    document = msgspec.json.decode(page.run("describe", "workload/shop/job", "-o", "json").stdout)
    assert len(document["nextExecutions"]) == 10
    assert "T04:30:00Z" in page.run("describe", "workload/shop/job").stdout
    assert "has not run yet" in shown
    assert admin.form("/ui/resource/workload/shop/job", "/-command").fields["type"] == "runCronWorkload"


def test_a_suspended_cron_workload_has_no_next_times(tmp_path: Path) -> None:
    suspended = CRON.replace('1"}', '1", suspend: true}')
    with api_sandbox(tmp_path, FILES | {"shop/job.yaml": suspended}) as sandbox:
        assert "None: its manifest suspends it" in Browser(sandbox).log_in().get("/ui/resource/workload/shop/job")
        assert "none: its manifest suspends it" in sandbox.run("describe", "workload/shop/job").stdout


def test_volumes_have_their_actions_each_with_what_it_will_do(page: ApiSandbox, admin: Browser) -> None:
    path = "/ui/resource/volumeset/shop/data"
    shown = admin.get(path)
    assert "used of 10 GB" in shown
    assert "All data of volume 0 at here are lost" in shown
    parsed = admin.forms(path)
    by_command = {form.fields.get("type"): form for form in parsed if form.action.endswith("/-command")}
    snapshot = by_command["createVolumeSnapshot"]
    assert snapshot.fields["spec.location"] in ("here", "there")
    assert admin.send(snapshot, spec__snapshotName="before").status_code == 303
    assert "createVolumeSnapshot" in section(admin.get(path), "Commands")
    assert not [form for form in Browser(page).log_in_as("viewer").forms(path) if form.action.endswith("/-command")]


def test_the_page_of_a_resource_shows_its_commands(page: ApiSandbox, admin: Browser) -> None:
    done = page.run("command", "workload/shop/job", "runCronWorkload", "location=here")
    assert done.returncode == 0, done.stderr
    assert "runCronWorkload" in section(admin.get("/ui/resource/workload/shop/job"), "Commands")


def test_a_favourite_needs_a_script_and_is_no_dead_control_without(admin: Browser) -> None:
    shown = admin.get(WEB_PAGE)
    assert re.search(r"<button[^>]* data-favourite=\"workload/shop/web\"[^>]* hidden>", shown)
    assert re.search(r'<section id="favourites"[^>]* hidden>', admin.get("/ui/resources"))


def test_a_command_to_copy_has_each_value_as_one_word(page: ApiSandbox, admin: Browser) -> None:
    page.repo.git("branch", "$(reboot)", "main")
    for path in (
        "/ui/logs?query=x'%3B%20reboot%3B%20'",
        "/ui/resources?text=a%3B%20reboot&tag=x",
        "/ui/plan/source/main?revision=%24(reboot)",
        "/ui/diff/source/main?from=%24(reboot)&to=main",
    ):
        shown = admin.request("GET", path).text
        commands = [html.unescape(text) for text in re.findall(r'data-copy="([^"]*)"', shown)]
        assert commands, path
        for command in commands:
            lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
            assert not {";", "$", "(", "`"} & set(lexer), command


def test_logs_suggest_only_what_the_caller_may_read(page: ApiSandbox, admin: Browser) -> None:
    assert '<option value="workload/shop/web">' in admin.get("/ui/logs")
    shown = Browser(page).log_in_as("narrow").get("/ui/logs")
    assert "workload/shop/web" not in re.sub(r"placeholder='[^']*'", "", shown)


def test_the_link_to_what_the_first_commit_changed_answers_in_words(page: ApiSandbox, admin: Browser) -> None:
    link = re.search(r'href="([^"]+)">What the commit changed', admin.get("/ui/runs/1"))
    assert link is not None
    assert "There is no commit before" in admin.get(html.unescape(link[1]))
    assert "nix" in admin.get("/ui/diff/source/main?from=nix&to=HEAD", 404)


def test_a_page_about_a_problem_has_the_way_to_log_out(page: ApiSandbox, admin: Browser) -> None:
    assert admin.form("/ui/runs/1", "/ui/logout")
    for path, status in (("/ui/resource/workload/shop/nix", 404), ("/ui/resources?kind=nix", 404)):
        shown = admin.get(path, status)
        assert 'action="/ui/logout"' in shown
        assert "user/" in shown
    assert 'action="/ui/logout"' not in Browser(page).get("/ui/login")


def test_what_is_in_git_and_waits_has_a_page_with_the_reason(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES | {"shop/data.yaml": DATA}) as sandbox:
        renamed = DATA.replace("name: data", "name: store").replace("volumeset/data", "volumeset/store")
        sandbox.repo.commit({"shop/data.yaml": renamed}, "Give the data another name")
        sandbox.run("apply")
        admin = Browser(sandbox).log_in()
        path = "/ui/resource/volumeset/shop/store"
        assert f'href="{path}"' in admin.get("/")
        shown = admin.get(path)
        assert "It was not applied yet" in shown
        assert "ApprovalRequired" in shown
        assert "there is no volumeset/shop/nix" in admin.get("/ui/resource/volumeset/shop/nix", 404)
        Browser(sandbox).log_in_as("ci").get(path, 403)
