"""The page of a daemon, in a browser: who is logged in, what it complains about, and pictures of it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from reconciler.daemon.api_process import SOCKET
from tests.project.tree import ROOT
from tests.support.host_sandbox import HostSandbox, host_sandbox
from tests.support.sandbox import eventually

PICTURES = ROOT / "build/pictures"
"""Where pictures of the page are after a run."""
AXE = ROOT / "build/axe/node_modules/axe-core/axe.min.js"
WIDE, NARROW = 1280, 360
# It is not like another one that waits: then it would be that one, with a new name.
WAITS = """kind: volumeset
name: waits
gvc: shop
spec: {fileSystemType: xfs, initialCapacity: 20, performanceClass: general-purpose-ssd}
"""


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
        page.set_default_timeout(60_000)
        try:
            yield page
        finally:
            context.close()
        # A browser reports a page with a status such as 403 as an error, which it is meant to be.
        wrong = [fault for fault in faults if "Failed to load resource" not in fault]
        assert not wrong, wrong

    def find_digests(self) -> set[str]:
        """The digests of plans that wait for an approval, as short as commands show them."""
        return set(re.findall(r"reconciler approve (\w+)", self.sandbox.run("status").stdout))

    def let_deletion_wait(self) -> str:
        """Delete a volume set, which waits for an approval; the digest of the plan, with all that waits."""
        self.sandbox.repo.commit({"shop/waits.yaml": WAITS}, "Add a volume set")
        done = self.sandbox.run("sync")
        print(done, self.sandbox.run("status").stdout, self.sandbox.run("describe", "source/main").stdout)
        eventually(lambda: "volumeset/shop/waits@here" in self.sandbox.recorded(), "it is there")
        before = self.find_digests()
        self.sandbox.repo.commit({"shop/waits.yaml": None}, "Delete it")
        eventually(lambda: self.find_digests() - before, "its deletion waits")
        return min(self.find_digests() - before)

    def find_names(self) -> dict[str, str]:
        """The names in the addresses of views: the first commit, a plan that waits, and a message."""
        first = self.sandbox.repo.git("rev-list", "--max-parents=0", "main").strip()
        message = self.sandbox.run("notify", "list").stdout.split()
        digest = min(self.find_digests(), default="") or self.let_deletion_wait()
        return {"first": first, "digest": digest, "message": next((word for word in message if word.isdecimal()), "")}

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


@contextlib.contextmanager
def sandbox_beside_browser(path: Path, files: Mapping[str, str], **settings: Any) -> Iterator[HostSandbox]:
    """A sandbox of its own while the browser runs: its end has an event loop, and this thread that of the browser."""
    ending = contextlib.ExitStack()
    with ThreadPoolExecutor(1) as thread, contextlib.ExitStack() as stack:
        stack.callback(lambda: thread.submit(ending.close).result())
        yield ending.enter_context(host_sandbox(path, files, **settings))


def send_request(page: Any, path: str, fields: Mapping[str, str] | None = None) -> httpx2.Response:
    """The answer to a request of the page's session, or to a form with ``fields``: beside the page, which stays."""
    cookies = "; ".join(f"{cookie['name']}={cookie['value']}" for cookie in page.context.cookies())
    address = urlsplit(page.url)
    headers = {"Host": address.netloc, "Cookie": cookies}
    base = f"http://127.0.0.1:{address.port}"
    return httpx2.request("GET" if fields is None else "POST", base + path, headers=headers, data=fields, timeout=60)


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
