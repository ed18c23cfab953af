"""Every view and every action, by each caller and without scripts: what they may not do is refused, not offered."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from tests.page.conftest import ACCESS, NEWER_REPORT
from tests.page.site import WIDE, Site, sandbox_beside_browser, send_request, take_picture
from tests.page.table import ACTIONS, ADMINISTRATOR, APPROVALS, CALLERS, OPERATOR, RETRY, VIEWER, VIEWS, Action
from tests.support.host_sandbox import GVC, served
from tests.support.processes import free_ports
from tests.support.sandbox import eventually

pytestmark = pytest.mark.browser
each_caller = pytest.mark.parametrize("caller", CALLERS, ids=["administrator", "operator", "viewer"])
each_browser = pytest.mark.parametrize("with_scripts", [True, False], ids=["with-scripts", "without-scripts"])
STILL = """[...document.querySelectorAll('*')].filter((one) => {
    const style = getComputedStyle(one);
    return style.transitionDuration.split(', ').some((time) => time !== '0s') || style.animationName !== 'none';
}).length"""
"""How many elements of a page move."""


@each_caller
@each_browser
def test_each_view_answers_or_is_refused_in_words(site: Site, caller: str, with_scripts: bool) -> None:
    names = site.find_names()
    options = {"java_script_enabled": with_scripts, "reduced_motion": "reduce"}
    with site.visit(caller, **options) as page:
        for name, view in VIEWS.items():
            answer = page.goto(view.path.format(**names))
            main = page.get_by_role("main")
            if caller not in view.callers:
                assert answer.status == 403, name
                assert "permission" in main.inner_text(), name
                continue
            assert answer.status == 200, (name, main.inner_text())
            check_view(page, view.command.format(**names), with_scripts)


def check_view(page: Any, command: str, with_scripts: bool) -> None:
    """Check what is true for every view: a heading, the command, ages with their times, and nothing that moves."""
    main = page.get_by_role("main")
    assert page.get_by_role("heading", level=1).count() == 1, page.url
    assert command in " ".join(main.locator("code").all_inner_texts()), page.url
    ages = page.locator("time").evaluate_all("all => all.map(one => [one.textContent, one.dateTime, one.title])")
    assert all(moment and (not age.endswith(" ago") or title == moment) for age, moment, title in ages), page.url
    assert all(text.strip() for text in main.locator(".empty").all_inner_texts()), page.url
    if with_scripts:
        assert page.evaluate(STILL) == 0, page.url
        page.keyboard.press("?")
        assert page.get_by_role("dialog").is_visible(), page.url
        page.keyboard.press("Escape")
    page.emulate_media(media="print")
    assert page.locator("button:visible, input:visible, header:visible, .command:visible").count() == 0, page.url
    page.emulate_media(media="screen")


@each_caller
def test_no_view_has_a_link_that_is_refused(site: Site, caller: str) -> None:
    names, named, tried = site.find_names(), {}, set()
    with site.visit(caller, java_script_enabled=False) as page:
        for name, view in VIEWS.items():
            if caller in view.callers and name != "no-rollback":
                page.goto(view.path.format(**names))
                links = page.locator("a[href^='/']").evaluate_all("all => all.map(one => one.getAttribute('href'))")
                named |= dict.fromkeys(links, name)
        for link, name in named.items():
            if (form := re.sub(r"[0-9a-f]{40}", "COMMIT", link.partition("#")[0])) not in tried:
                tried.add(form)
                status = send_request(page, link.partition("#")[0]).status_code
                assert status in (200, 409), (name, link, status)
    assert len(tried) > 20


@each_caller
@each_browser
def test_each_action_is_done_or_neither_offered_nor_done(site: Site, caller: str, with_scripts: bool) -> None:
    names = site.find_names() | {"name": f"of-{caller or 'root'}-{with_scripts}".lower()}
    with site.visit(caller, java_script_enabled=with_scripts) as page:
        for action in ACTIONS:
            if caller in action.callers:
                if action.template == "rollback":
                    change_report(site)
                if action.template == "terminal" or ("type", "stopReplica") in action.fields:
                    # Replicas end and begin after the actions before: one that ends cannot be stopped or entered.
                    eventually(lambda: is_rolled_out(site), "both replicas of it are ready, and no other is left")
                perform_action(page, action, names)
            else:
                refuse_action(page, action, names)


def is_rolled_out(site: Site) -> bool:
    """Whether the replicas of ``web`` are those that it keeps."""
    sandbox = site.sandbox
    return len(sandbox.ready("web")) == len(sandbox.replicas("web")) == 2 and sandbox.healthy()


@pytest.mark.parametrize("caller", CALLERS[1:])
def test_what_a_state_allows_is_not_offered_to_others(site: Site, caller: str) -> None:
    names = site.find_names() | {"name": "of-nobody", "size": "100"}
    for target in ("workload/shop/web", "main"):
        assert site.sandbox.run("suspend", target, "--reason", "a look").returncode == 0
    try:
        with site.visit(caller, java_script_enabled=False) as page:
            for action in (*ACTIONS, *APPROVALS, RETRY):
                if caller not in action.callers:
                    refuse_action(page, action, names)
    finally:
        for target in ("workload/shop/web", "main"):
            assert site.sandbox.run("resume", target).returncode == 0


@each_browser
def test_what_waits_is_refused_and_approved(site: Site, with_scripts: bool) -> None:
    with site.visit(java_script_enabled=with_scripts) as page:
        for actions in (APPROVALS[:2], APPROVALS[2:]):
            digest = site.let_deletion_wait()
            for action in actions:
                perform_action(page, action, {"digest": digest}, digest)
                if action.answer == "refused":
                    page.goto("/")
                    assert "a look" in page.locator("section", has_text="Waits for you").inner_text()
            eventually(lambda: "volumeset/shop/waits@here" not in site.sandbox.recorded(), "it is deleted")


def test_a_failed_step_is_tried_again(tmp_path: Path, browser: Any) -> None:
    with site_with_cluster(tmp_path, browser) as site, site.sandbox.daemon():
        described = ("describe", "workload/shop/web")
        eventually(lambda: "Failures" in site.sandbox.run(*described).stdout, "the cluster does not answer")
        for with_scripts in (True, False):
            for caller in (ADMINISTRATOR, OPERATOR):
                with site.visit(caller, java_script_enabled=with_scripts) as page:
                    perform_action(page, RETRY, {})
        with site.visit(VIEWER) as page:
            refuse_action(page, RETRY, {})
            page.goto("/")
            take_picture(page, f"unreachable-{WIDE}-light")


@contextlib.contextmanager
def site_with_cluster(path: Path, browser: Any) -> Iterator[Site]:
    """The page of a daemon whose workload is at a cluster that does not answer."""
    api_port, cluster_port = free_ports(2)
    file, names = path / "cluster", {"cluster": "away", "user": "away"}
    cluster = {"contexts": [{"name": "away", "context": names}], "users": [{"name": "away", "user": {"token": "none"}}]}
    cluster |= {"clusters": [{"name": "away", "cluster": {"server": f"http://127.0.0.1:{cluster_port}"}}]}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "away", **cluster}))
    away = {"engine": "kubernetes", "cluster": {"kubeconfig": str(file)}}
    settings = {"api": {"address": f"127.0.0.1:{api_port}"}, "locations": {"here": {"engine": "host"}, "away": away}}
    files = {"shop/gvc.yaml": GVC.replace("/here", "/away"), "access.yaml": ACCESS, "shop/web.yaml": served("web")}
    with sandbox_beside_browser(path / "site", files, **settings) as sandbox:
        yield Site(browser, sandbox, 0)


def change_report(site: Site) -> None:
    """Let the report be in Git as in its second version."""
    if site.sandbox.repo.git("show", "main:shop/report.yaml") != NEWER_REPORT:
        commit = site.sandbox.repo.commit({"shop/report.yaml": NEWER_REPORT}, "Name the shop again")
        # A difference that is shown before that is refused as outdated.
        eventually(lambda: site.sandbox.applied(commit), "the newer report is applied")


def find_form(page: Any, action: Action, names: dict[str, str]) -> Any:
    """The form of an action on the page, by where it sends to and by what it sends."""
    form = page.locator(f'form[method="post"][action="{action.sends}"]')
    for name, text in action.fields:
        selector = f'input[name="{name}"]'
        field = page.locator(f'{selector}:not([type="hidden"]), {selector}[value="{text.format(**names)}"]')
        form = form.filter(has=field)
    return form


def perform_action(page: Any, action: Action, names: dict[str, str], digest: str = "") -> None:
    """Do it as a person does: open what the form is in, fill it in, and click."""
    page.goto(action.view.format(**names))
    if "{size}" in str(action.fields):
        size = page.locator('input[name="spec.newStorageCapacity:number"]').first.get_attribute("min")
        names = {**names, "size": str(size)}
    form = find_form(page, action, names)
    if digest:
        form = form.filter(has=page.locator(f'input[name="digest"][value^="{digest}"]'))
    assert form.count() >= 1, (action, page.get_by_role("main").inner_text())
    form = form.first
    for fold in reversed(form.locator("xpath=ancestor::details").all()):
        if fold.get_attribute("open") is None:
            fold.locator("summary").first.click()
    for name, text in action.fields:
        field = form.locator(f'input[name="{name}"]')
        if field.get_attribute("type") != "hidden":
            field.fill(text.format(**names))
    form.locator("button:visible").last.click()
    try:
        shown = page.locator(".notice, #main pre").first.inner_text()
    except sync_api.TimeoutError:
        shown = page.locator("body").inner_text()
    assert action.answer in shown, (action, page.url, shown)
    if action.command:
        wait_for_command(page, action)


def wait_for_command(page: Any, action: Action) -> None:
    """Return once the command that was requested last is completed."""

    def is_completed() -> bool:
        page.goto(action.view)
        text = page.locator("h2:text-is('Commands') + ul > li").first.inner_text()
        assert action.command in text, text
        assert "failed" not in text, text
        return "completed" in text

    eventually(is_completed, f"{action.command} is completed", 60)


def refuse_action(page: Any, action: Action, names: dict[str, str]) -> None:
    """Check that it is not offered, and refused if it is sent all the same."""
    page.goto(action.view.format(**names))
    assert page.locator(f'form[action="{action.sends}"]').count() == 0, action
    token = page.locator('form[action="/ui/logout"] input[name="form_token"]').get_attribute("value")
    fields = {name: text.format(**{"size": "100", **names}) for name, text in action.fields}
    if action.sends.endswith(("-approve", "-refuse")):
        fields["digest"] = names["digest"]
    answer = send_request(page, action.sends, {"form_token": token, "next": "/", **fields})
    assert answer.status_code == 403, (action, answer.status_code, answer.text)
    assert "permission" in answer.text, action
