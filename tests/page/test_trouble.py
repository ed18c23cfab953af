"""The page in trouble: it says in words what is wrong, and recovers without anybody who loads it again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_process import workers as find_workers
from tests.page.site import Site, sandbox_beside_browser
from tests.support.host_sandbox import HostSandbox, served
from tests.support.processes import free_ports
from tests.support.programs import fill, only_root, small_disk
from tests.support.sandbox import eventually

pytestmark = pytest.mark.browser
PATIENCE = 60_000
"""Milliseconds that a page may take on a machine that is busy."""


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """The processes do nothing meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def wait_for(page: Any, selector: str, state: str) -> None:
    """Return when what ``selector`` selects is ``visible`` or ``hidden``."""
    page.locator(selector).first.wait_for(state=state, timeout=PATIENCE)


def test_a_daemon_that_hangs_is_named_and_so_is_its_return(site: Site) -> None:
    alert = "text=The daemon does not answer"
    with site.visit() as page:
        page.goto("/")
        assert page.locator(alert).count() == 0
        with stopped(site.daemon):
            wait_for(page, alert, "visible")
            assert page.locator("#offline").is_hidden()
        wait_for(page, alert, "hidden")


def test_an_answer_that_takes_long_is_announced_and_shown_when_it_comes(site: Site) -> None:
    with site.visit() as page:
        page.goto("/ui/resources")
        with stopped(*find_workers(site.daemon)):
            page.get_by_label("Text").press_sequentially("brok")
            wait_for(page, "#slow", "visible")
        wait_for(page, "#slow", "hidden")
        page.get_by_role("link", name="workload/shop/web", exact=True).wait_for(state="detached", timeout=PATIENCE)
        assert page.locator("#rows tbody tr").count() == 1


def test_a_server_that_falls_silent_is_named_and_asked_again(site: Site) -> None:
    with site.visit() as page:
        page.clock.install()
        for path in ("/ui/runs", "/ui/logs?query=workload/shop/report"):
            with page.expect_request(lambda request: "/ui/events?" in request.url or "/follow?" in request.url):
                page.goto(path)
            # Neither an answer nor the end of the connection comes, as behind a cable that is cut.
            with stopped(*find_workers(site.daemon)):
                page.clock.fast_forward(30_000)
                assert page.locator("#offline").is_hidden()
                page.clock.fast_forward(30_000)
                wait_for(page, "#offline", "visible")
            wait_for(page, "#offline", "hidden")


def test_a_page_that_was_refused_for_a_while_shows_what_it_missed(site: Site) -> None:
    with site.visit() as page:
        page.goto("/ui/runs")
        page.locator("main[data-live]").wait_for()
        # A server that starts has no stream yet, after which a browser does not ask again by itself.
        page.route("**/ui/events**", lambda route: route.fulfill(status=503, body="not yet"))
        for pid in find_workers(site.daemon):
            os.kill(pid, signal.SIGKILL)
        wait_for(page, "#offline", "visible")
        site.sandbox.repo.commit({"missed.yaml": "kind: group\nname: missed\n"}, "Add what a page missed")
        eventually(lambda: "Add what a page missed" in site.sandbox.run("history").stdout, "the run has ended")
        page.unroute("**/ui/events**")
        wait_for(page, "#offline", "hidden")
        wait_for(page, "text=Add what a page missed", "visible")


@contextmanager
def site_on_small_disk(path: Path, browser: Any) -> Iterator[Site]:
    """The page of a daemon whose state directory lies on a file system of its own."""
    api = {"address": f"127.0.0.1:{free_ports(1)[0]}"}
    files = {"shop/web.yaml": served("web", replicas=1)}
    with (
        small_disk(path / "small", "size=60m") as small,
        sandbox_beside_browser(path / "site", files, api=api) as sandbox,
    ):
        sandbox.state = small / "state"
        sandbox.configure(state=str(sandbox.state))
        yield Site(browser, sandbox, 0)


@only_root("mounts a file system of its own")
def test_a_full_disk_is_named_and_a_daemon_that_began_again_is_followed(tmp_path: Path, browser: Any) -> None:
    with site_on_small_disk(tmp_path, browser) as site:
        sandbox: HostSandbox = site.sandbox
        with sandbox.daemon() as daemon:
            eventually(sandbox.healthy, "web is healthy")
            with site.visit() as page:
                page.goto("/")
                filler = fill(sandbox.state)
                sandbox.repo.commit({"shop/web.yaml": served("web", replicas=2)}, "Serve more")
                wait_for(page, "text=is full: replicas keep running", "visible")
                filler.unlink()
                wait_for(page, "text=is full: replicas keep running", "hidden")
                daemon.kill()
                wait_for(page, "#offline", "visible")
                with sandbox.daemon():
                    wait_for(page, "#offline", "hidden")
                    sandbox.repo.commit({"shop/web.yaml": served("web", replicas=1)}, "Serve less")
                    wait_for(page, "text=Serve less", "visible")
