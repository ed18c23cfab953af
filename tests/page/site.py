"""The page of a daemon, in a browser: who is logged in, what it complains about, and pictures of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from reconciler.daemon.api_process import SOCKET
from tests.project.tree import ROOT
from tests.support.host_sandbox import HostSandbox

PICTURES = ROOT / "build/pictures"
"""Where pictures of the page are after a run."""
AXE = ROOT / "build/axe/node_modules/axe-core/axe.min.js"
WIDE, NARROW = 1280, 360


class Site:
    """The page of the daemon of ``sandbox``, in ``browser``."""

    def __init__(self, browser: Any, sandbox: HostSandbox, daemon: int) -> None:
        self._browser = browser
        self.daemon = daemon
        """The process of the daemon."""
        self.sandbox = sandbox
        self._states: dict[str, Any] = {}
        port = sandbox.settings["api"]["address"].rpartition(":")[2]
        self.base = f"http://reconciler.localhost:{port}"

    @contextlib.contextmanager
    def visit(self, caller: str = "", **options: Any) -> Iterator[Any]:
        """A page of ``caller`` ("": a superuser) who is logged in; an error of a script fails the test."""
        options = {"viewport": {"width": WIDE, "height": 800}, **options}
        context = self._browser.new_context(storage_state=self._log_in(caller), base_url=self.base, **options)
        faults: list[str] = []
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.set_default_timeout(15_000)
        try:
            yield page
        finally:
            context.close()
        # A browser reports a page with a status such as 403 as an error, which it is meant to be.
        assert [fault for fault in faults if "Failed to load resource" not in fault] == []

    def forget_login(self, caller: str) -> None:
        """Let ``caller`` log in again at the next visit: their session has ended."""
        del self._states[caller]

    def _log_in(self, caller: str) -> Any:
        if caller not in self._states:
            context = self._browser.new_context(base_url=self.base)
            page = context.new_page()
            page.goto(self.make_link() if not caller else "/ui/login")
            if caller:
                page.get_by_label("Key of a service account").fill(self._make_key(caller))
                page.get_by_role("button", name="Log in").click()
            assert urlsplit(page.url).path == "/", page.content()
            self._states[caller] = context.storage_state()
            context.close()
        return self._states[caller]

    def make_link(self) -> str:
        """A link that logs a superuser in once, as `reconciler page` prints it."""
        done = self.sandbox.run("page")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _make_key(self, account: str) -> str:
        transport = httpx2.HTTPTransport(uds=str(self.sandbox.state / SOCKET))
        with httpx2.Client(transport=transport) as client:
            answer = client.post(f"http://api/org/acme/serviceaccount/{account}/-key", json={})
        return str(answer.json()["key"])


def take_picture(page: Any, name: str) -> Path:
    """A picture of the whole page."""
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path


def find_violations(page: Any) -> list[str]:
    """What keeps people from using the page, by the rules of axe."""
    page.evaluate(AXE.read_text())
    violations = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {json.dumps([node['html'][:200] for node in one['nodes']])}" for one in violations]
