"""The page in Chromium: every view and action, by mouse, by keyboard, without scripts, and as it lives on."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest

from tests.api.test_process import workers as find_workers
from tests.page.site import AXE, NARROW, PICTURES, WIDE, Site, find_violations, take_picture
from tests.page.table import VIEWS
from tests.support.sandbox import eventually

pytestmark = pytest.mark.browser

WEB = "/ui/resource/workload/shop/web"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_view_fits_is_accessible_and_has_its_picture(site: Site, width: int, scheme: str) -> None:
    names = site.find_names()
    with site.visit(viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        for name, view in VIEWS.items():
            page.goto(view.path.format(**names))
            if name == "exec":
                page.get_by_role("button", name="Open a shell").wait_for()
            take_picture(page, f"{name}-{width}-{scheme}")
            # A view scrolls in one direction; wide tables do it by themselves.
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            if AXE.exists():
                assert find_violations(page) == [], name


def test_two_versions_are_chosen_and_compared(site: Site) -> None:
    with site.visit(java_script_enabled=False) as page:
        page.goto(WEB)
        page.get_by_role("button", name="Compare").click()
        row = page.get_by_role("row", name="GREETING")
        assert "hello" in row.inner_text()
        assert "hi" in row.inner_text()
        page.get_by_label("Path").get_by_role("link", name="workload/shop/web").click()
        page.get_by_role("link", name="or the whole source").first.click()
        page.get_by_text("back to this revision").click()
        assert "newer commits are not, until you resume it" in page.get_by_role("main").inner_text()
        page.get_by_label("Reason").last.fill("a broken greeting")
        page.get_by_role("button", name="Roll back").click()
        assert "main" in page.locator(".notice").inner_text()
        assert site.sandbox.run("resume", "main").returncode == 0


def test_a_volume_shows_what_each_action_will_do_and_does_it(site: Site) -> None:
    with site.visit(java_script_enabled=False) as page:
        page.goto("/ui/resource/volumeset/shop/media")
        page.get_by_text("Restore…").click()
        assert page.get_by_text("What was written to volume 0 since before-the-sale is lost.").is_visible()
        page.get_by_text("Take a snapshot…").click()
        page.get_by_label("Name", exact=True).fill("of-today")
        page.get_by_role("button", name="Take it").click()
        assert "createVolumeSnapshot" in page.locator(".notice").inner_text()
        eventually(lambda: "of-today" in site.sandbox.run("snapshots").stdout, "the snapshot is taken")


def test_a_stack_trace_is_folded_below_its_line(site: Site) -> None:
    with site.visit() as page:
        page.goto("/ui/logs?query=workload/shop/report")
        assert page.locator(".log .warning").count() == 1
        trace = page.locator(".log details.error")
        assert trace.get_by_text("is no report").is_hidden()
        trace.locator("summary").click()
        assert "<script>alert(1)</script> is no report" in trace.inner_text()
        page.get_by_label("Level").select_option("info")
        page.get_by_role("button", name="Show").click()
        eventually(lambda: page.locator("#lines > *").count() == 1, "one line is left")


def test_favourites_are_in_the_browser_alone(site: Site) -> None:
    with site.visit() as page:
        page.goto("/ui/resources")
        assert page.locator("#favourites").is_hidden()
        page.goto(WEB)
        page.get_by_role("button", name="Favourite").click()
        assert page.get_by_role("button", name="Favourite").get_attribute("aria-pressed") == "true"
        page.goto("/ui/resources")
        page.locator("#favourites").get_by_role("link", name="workload/shop/web").click()
        page.wait_for_url(f"**{WEB}")
        page.get_by_role("button", name="Favourite").click()
        page.goto("/ui/resources")
        assert page.locator("#favourites").is_hidden()
        hostile = ["<img src=x onerror=alert(1)>", "javascript:alert(1)"]
        page.evaluate("keys => localStorage.setItem(`favourites ${who}`, JSON.stringify(keys))", hostile)
        page.reload()
        links = page.locator("#favourites a")
        assert links.all_inner_texts() == hostile
        assert all(links.nth(place).get_attribute("href").startswith("/ui/resource/") for place in range(2))
    with site.visit(java_script_enabled=False) as page:
        page.goto(WEB)
        assert page.get_by_role("button", name="Favourite").count() == 0


def test_a_printed_plan_has_every_change_and_no_controls(site: Site) -> None:
    with site.visit() as page:
        page.goto(f"/ui/plan/source/main?revision={site.find_names()['first']}")
        page.evaluate("for (const step of document.querySelectorAll('details.step')) step.open = false")
        page.emulate_media(media="print")
        take_picture(page, "printed-plan")
        assert page.get_by_role("row", name="GREETING").is_visible()
        assert page.locator("button:visible, input:visible, header:visible, .command:visible").count() == 0
        pdf = page.pdf(format="A4")
        assert pdf.startswith(b"%PDF")
        (PICTURES / "printed-plan.pdf").write_bytes(pdf)


def test_an_open_page_shows_what_was_recorded_and_keeps_what_somebody_writes(site: Site) -> None:
    with site.visit() as page:
        page.goto(WEB)
        assert site.sandbox.run("suspend", "workload/shop/web", "--reason", "a look").returncode == 0
        page.get_by_text("a look").first.wait_for()
        page.get_by_text("Actions").click()
        search = page.get_by_role("searchbox")
        search.fill("half a wor")
        assert site.sandbox.run("resume", "workload/shop/web").returncode == 0
        page.wait_for_timeout(1500)  # a refresh would have come by then
        assert search.input_value() == "half a wor"
        assert page.get_by_text("a look").count() > 0


def test_a_page_that_lost_its_server_reports_that_and_catches_up(site: Site) -> None:
    with site.visit() as page:
        page.goto("/")
        offline = page.locator("#offline")
        page.locator("main[data-live]").wait_for()
        # A request that is under way when the server ends is an error in the console of the browser.
        page.locator(".evidence[hx-get]:has(> a:only-child)").first.wait_for(state="detached")
        for pid in find_workers(site.daemon):
            os.kill(pid, signal.SIGKILL)
        offline.wait_for(state="visible")
        offline.wait_for(state="hidden")
        assert page.get_by_role("heading", level=1).count() == 1


def test_a_search_answers_as_somebody_types(site: Site) -> None:
    with site.visit() as page:
        page.goto("/ui/resources")
        page.get_by_label("Text").press_sequentially("brok")
        # Each row that does not match goes.
        page.get_by_role("link", name="workload/shop/web", exact=True).wait_for(state="detached")
        assert page.locator("#rows tbody tr").count() == 1
        assert page.get_by_label("Text").input_value() == "brok"


@pytest.mark.parametrize("with_scripts", [True, False], ids=["with-scripts", "without-scripts"])
def test_usage_is_drawn_and_readable_as_text(site: Site, with_scripts: bool) -> None:
    with site.visit(java_script_enabled=with_scripts) as page:

        def is_drawn() -> bool:
            page.goto(WEB)
            return bool(page.get_by_role("img", name=re.compile("CPU in the last hour: now .*m, between")).count())

        eventually(is_drawn, "CPU is drawn", 60)
        assert page.get_by_role("img", name=re.compile("Replicas ready in the last hour: now 2")).count() == 1
        page.get_by_text("By the hour").click()
        assert page.get_by_role("columnheader", name="Memory").count() >= 1
        assert not with_scripts or not AXE.exists() or find_violations(page) == []


def test_a_run_shows_when_each_of_its_phases_was(site: Site) -> None:
    with site.visit(java_script_enabled=False) as page:
        page.goto("/ui/runs/1")
        table = page.locator("table.timeline")
        names = table.get_by_role("rowheader").all_inner_texts()
        assert names[:2] == ["load", "plan"]
        assert "create workload/shop/web@here" in names
        assert table.locator("svg rect").count() == len(names)


def test_the_way_back_after_a_logout_shows_nothing(site: Site) -> None:
    with site.visit("viewer") as page:
        page.goto("/")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/ui/login")
        page.go_back()
        page.get_by_role("heading", name="Log in").wait_for()
    site.forget_login("viewer")


def collect_requests(page: Any) -> list[str]:
    """The addresses that the page asks for from now on."""
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url))
    return addresses


def test_a_page_asks_no_other_host(site: Site) -> None:
    with site.visit() as page:
        addresses = collect_requests(page)
        names = site.find_names()
        for view in VIEWS.values():
            page.goto(view.path.format(**names))
        assert {address for address in addresses if not address.startswith(site.base)} == set()


def test_a_terminal_runs_a_shell_in_a_container(site: Site) -> None:
    with site.visit("operator") as page:
        page.goto(WEB)
        page.get_by_role("link", name="Terminal").click()
        page.get_by_role("button", name="Open a shell").click()
        page.get_by_text("Connected.").wait_for()
        page.keyboard.type("echo $((6 * 7)) in $PLATFORM_WORKLOAD\n")
        page.locator(".xterm-rows").get_by_text("42 in ").wait_for()
        # Its colours and sizes come from rules of xterm.js, which the policy of the page does not block.
        assert page.locator(".xterm-screen").bounding_box()["height"] > 100
        take_picture(page, f"terminal-{WIDE}-light")
        assert find_violations(page) == []
        page.keyboard.type("exit 3\n")
        page.get_by_text("non-zero exit code: 3").wait_for()


def test_without_scripts_a_page_runs_one_command(site: Site) -> None:
    with site.visit("operator", java_script_enabled=False) as page:
        page.goto("/ui/exec/workload/shop/web")
        page.get_by_label("One command").fill("sh -c 'echo $((6 * 7)); exit 3'")
        page.get_by_role("button", name="Run it").click()
        assert "exit code 3" in page.get_by_role("main").inner_text()
        assert page.locator("pre").inner_text().strip() == "42"


def test_the_first_screen_shows_what_is_behind_a_reason(site: Site) -> None:
    with site.visit("operator") as page:
        page.goto("/")
        card = page.locator(".card", has_text="workload/shop/crash")
        card.get_by_text("no such database").first.wait_for()
        assert "It began" in card.inner_text()
        take_picture(page, f"home-evidence-{WIDE}-light")
        # A change on the page leaves the evidence where it is.
        site.sandbox.repo.commit({"team.yaml": "kind: group\nname: team\n"}, "Add a team")
        page.get_by_text("Add a team").first.wait_for()
        assert card.locator(".log").count() == 1
        page.goto("/ui/resource/workload/shop/crash")
        page.locator(".evidence .log").wait_for()
        page.screenshot(path=PICTURES / f"crash-{WIDE}-light.png")
    with site.visit("viewer", java_script_enabled=False) as page:
        page.goto("/")
        page.locator(".card", has_text="crash").get_by_role("link", name="Replicas and last lines").click()
        assert "You may not read its log" in page.get_by_role("main").inner_text()


def test_a_replica_is_stopped_and_replaced(site: Site) -> None:
    with site.visit(java_script_enabled=False) as page:
        page.goto(WEB)
        names = set(site.sandbox.replicas("web"))
        name = sorted(names)[0]
        row = page.get_by_role("row", name=name)
        row.get_by_text("Stop…").click()
        row.get_by_role("button", name=f"Stop {name}").click()
        assert "stopReplica" in page.locator(".notice").inner_text()
        eventually(lambda: name not in site.sandbox.replicas("web"), "the replica has ended")
        eventually(site.sandbox.healthy, "another one is ready")


@pytest.mark.parametrize("with_scripts", [True, False], ids=["with-scripts", "without-scripts"])
def test_the_tree_is_unfolded_down_to_the_replicas(site: Site, with_scripts: bool) -> None:
    with site.visit(java_script_enabled=with_scripts) as page:
        page.goto("/")
        page.get_by_role("link", name="Resources").click()
        page.get_by_role("link", name="what is in it").click()
        page.get_by_role("link", name="workload", exact=True).click()
        page.get_by_role("link", name="What is below workload/shop/web", exact=True).click()
        page.get_by_role("link", name="What is below workload/shop/web@here").click()
        rows = page.locator("th.replica").all_inner_texts()
        assert sorted(rows) == sorted(site.sandbox.replicas("web"))
        with site.visit("viewer", java_script_enabled=with_scripts) as other:
            other.goto(page.url)
            assert other.locator("th.replica").count() == len(rows)


def test_the_last_lines_behind_a_reason_are_in_their_order(site: Site) -> None:
    with site.visit() as page:
        page.goto("/ui/evidence/workload/shop/crash")
        heights = page.locator(".log time").evaluate_all(
            "all => all.map(one => [one.dateTime, one.getBoundingClientRect().top])"
        )
        assert len(heights) > 1
        assert [top for _, top in sorted(heights)] == sorted(top for _, top in heights)
