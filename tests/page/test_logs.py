"""Logs in Chromium: lines that follow by themselves, a pause, a loss, and a query that is completed by the keyboard."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.page.site import NARROW, WIDE, Site, find_violations, take_picture
from tests.page.test_browser import find_workers

pytestmark = pytest.mark.browser
LOGS = "/ui/logs?query=workload/shop/report"
FOLLOWS = "New lines come by themselves."


def run_job(site: Site, name: str = "report") -> None:
    """Let a cron workload write its lines again."""
    done = site.sandbox.run("command", f"workload/shop/{name}", "runCronWorkload", "location=here")
    assert done.returncode == 0, done.stderr


def wait_for_traces(page: Any, count: int) -> None:
    """Return once the page shows ``count`` stack traces."""
    page.wait_for_function(
        "count => document.querySelectorAll('#lines details.error').length === count", arg=count, timeout=60_000
    )


def test_lines_follow_until_somebody_pauses_and_come_when_they_continue(site: Site) -> None:
    with site.visit() as page:
        page.goto(LOGS)
        page.get_by_text(FOLLOWS).wait_for()
        traces = page.locator("#lines details.error").count()
        page.locator("#lines details.error summary").first.click()
        run_job(site)
        wait_for_traces(page, traces + 1)
        assert page.locator("#lines details[open]").count() == 1
        log = page.locator(".log")
        assert log.evaluate("one => Math.abs(one.scrollTop) < 5"), "the newest line is in view"
        page.get_by_role("button", name="Pause").click()
        page.get_by_text("Paused.").wait_for()
        run_job(site)
        with site.visit() as other:
            other.goto(LOGS)
            wait_for_traces(other, traces + 2)
        assert page.locator("#lines details.error").count() == traces + 1
        page.get_by_role("button", name="Continue").click()
        wait_for_traces(page, traces + 2)


def test_a_page_that_lost_its_server_gets_the_lines_that_it_missed_once(site: Site) -> None:
    with site.visit() as page:
        page.goto(LOGS)
        page.get_by_text(FOLLOWS).wait_for()
        traces = page.locator("#lines details.error").count()
        for pid in find_workers(site.daemon):
            os.kill(pid, signal.SIGKILL)
        page.locator("#offline").wait_for(state="visible")
        run_job(site)
        page.locator("#offline").wait_for(state="hidden", timeout=60_000)
        wait_for_traces(page, traces + 1)


def test_a_page_keeps_a_bounded_number_of_lines(site: Site) -> None:
    with site.visit() as page:
        page.goto("/ui/logs?query=workload/shop/flood")
        page.get_by_text(FOLLOWS).wait_for()
        run_job(site, "flood")
        page.get_by_text("line 2400", exact=True).wait_for(timeout=60_000)
        assert page.locator("#lines .line").count() <= 2000
        assert page.get_by_text("line 1", exact=True).count() == 0


def test_without_scripts_a_link_loads_newer_lines(site: Site) -> None:
    with site.visit(java_script_enabled=False) as page:
        page.goto(LOGS)
        assert page.get_by_role("button", name="Pause").count() == 0
        page.get_by_role("link", name="Newer lines").click()
        page.locator("#lines > *").first.wait_for()
        assert page.get_by_label("Query").get_attribute("list") == "queries"


def test_keys_wait_for_the_completions_of_what_is_written(site: Site) -> None:
    with site.visit() as page:
        delayed: list[Any] = []

        def answer(route: Any) -> None:
            if route.request.url.endswith("query=%7Bgv"):
                delayed.append(route)
            else:
                route.continue_()

        page.route("**/ui/logs/complete**", answer)
        page.goto("/ui/logs")
        box = page.get_by_role("combobox", name="Query")
        box.focus()
        page.keyboard.type("{")
        page.get_by_role("option", name="container").wait_for()
        # The list is still that of the brace alone.
        with page.expect_request("**/ui/logs/complete?query=%7Bgv"):
            page.keyboard.type("gv")
            page.keyboard.press("ArrowDown")
            page.keyboard.press("Enter")
        assert box.input_value() == "{gv"
        delayed[0].continue_()
        page.get_by_role("option", name="shop").wait_for()
        assert box.input_value() == '{gvc="'
        assert page.url.endswith("/ui/logs")
        page.keyboard.type("nothing")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.name") == "since"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_query_is_completed_by_the_keyboard_alone(site: Site, width: int, scheme: str) -> None:
    with site.visit(viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        page.goto("/ui/logs")
        box = page.get_by_role("combobox", name="Query")
        box.focus()
        options = page.get_by_role("listbox", name="Completions").get_by_role("option")
        box.press_sequentially("{gv")
        options.first.wait_for()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.get_by_role("option", name="shop").wait_for()
        assert box.input_value() == '{gvc="'
        page.keyboard.press("ArrowDown")
        assert find_violations(page) == []
        take_picture(page, f"completion-{width}-{scheme}")
        page.keyboard.press("Enter")
        page.get_by_role("option", name="all of these streams").wait_for()
        assert box.get_attribute("aria-expanded") == "true"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.get_by_role("option", name="lines with a text").wait_for()
        page.keyboard.press("Escape")
        assert options.count() == 0
        assert box.input_value() == '{gvc="shop"}'
        page.keyboard.press("Enter")
        page.get_by_text(FOLLOWS).wait_for()
        assert page.locator("#lines > *").count() > 0
        shown = page.locator("#lines .line").all_inner_texts()
        numbers = [text for text in shown if text.startswith("line ")]
        assert len(set(numbers)) == len(numbers), "no line comes twice"
        take_picture(page, f"logs-that-follow-{width}-{scheme}")
