"""The terminal of the page: who may open it, what closes it, and one command where no script runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx2
import pytest
from websockets.asyncio.client import unix_connect
from websockets.exceptions import InvalidStatus

from reconciler.api.page.sessions import COOKIE
from reconciler.api.routes.container_exec import PROTOCOL, STDIN
from reconciler.daemon.api_process import SOCKET
from tests.api.browser import Form, FormParser
from tests.support.host_sandbox import HostSandbox, host_sandbox, open_place, served
from tests.support.sandbox import eventually

ORIGIN = "http://localhost"
TERMINAL, EXEC = "/ui/terminal/workload/shop/web", "/ui/exec/workload/shop/web"
ACCESS = """kind: serviceaccount
name: operator
---
kind: serviceaccount
name: viewer
---
kind: policy
name: operators-connect
targetKind: workload
target: all
bindings: [{permissions: [connect], principalLinks: [//serviceaccount/operator]}]
---
kind: group
name: viewers
memberLinks: [//serviceaccount/viewer, //serviceaccount/operator]
"""


class Visitor(NamedTuple):
    """A browser that is logged in: the session in its cookie."""

    sandbox: HostSandbox
    session: str

    def request(self, method: str, path: str, fields: Mapping[str, str] | None = None, **headers: str) -> Any:
        """The answer to one request."""
        with open_client(self.sandbox) as client:
            sent = {"Cookie": f"{COOKIE}={self.session}", **headers}
            return client.request(method, path, data=fields, headers=sent)

    def run(self, command: str, **fields: str) -> str:
        """The page with the output of ``command``."""
        [form] = [form for form in self.read_forms() if form.action == EXEC]
        answer = self.request("POST", EXEC, form.fields | {"command": command, **fields})
        assert answer.status_code == 200, answer.text
        return str(answer.text)

    def read_forms(self) -> list[Form]:
        """The forms of the page with the terminal."""
        parser = FormParser()
        parser.feed(self.request("GET", EXEC).text)
        return parser.forms

    def open(self, path: str = TERMINAL, **headers: str) -> Any:
        """The WebSocket of the terminal."""
        sent = {"Cookie": f"{COOKIE}={self.session}", "Origin": ORIGIN, **headers}
        address = f"ws://localhost{path}?{urlencode({'tty': 'true', 'command': 'sh'})}"
        sent_headers = {name: value for name, value in sent.items() if value}
        return unix_connect(
            str(self.sandbox.state / SOCKET), address, subprotocols=[PROTOCOL], additional_headers=sent_headers
        )


def open_client(sandbox: HostSandbox) -> httpx2.Client:
    return httpx2.Client(transport=httpx2.HTTPTransport(uds=str(sandbox.state / SOCKET)), base_url=ORIGIN)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[HostSandbox]:
    """A daemon with a workload that runs."""
    files = {"shop/web.yaml": served(replicas=1), "access.yaml": ACCESS}
    with open_place() as path, host_sandbox(path, files, api={}) as sandbox, sandbox.daemon():
        eventually(lambda: sandbox.ready("web"), "the replica is ready")
        eventually(lambda: (sandbox.state / SOCKET).exists(), "the API listens")
        eventually(lambda: "serviceaccount/viewer" in sandbox.recorded(), "the accounts are there")
        yield sandbox


def log_in(sandbox: HostSandbox, account: str) -> Visitor:
    """A browser in which ``account`` is logged in."""
    with open_client(sandbox) as client:
        key = client.post(f"/org/acme/serviceaccount/{account}/-key", json={}).json()["key"]
        # A browser without a cookie is whoever may use the socket: the form needs no token.
        answer = client.post("/ui/login", data={"key": key})
        assert answer.status_code == 303, answer.text
        return Visitor(sandbox, answer.cookies[COOKIE])


async def read_status(link: Any) -> int:
    """The status with which a server refuses the WebSocket ``link``."""
    with pytest.raises(InvalidStatus) as refusal:
        async with link:
            pass
    return int(refusal.value.response.status_code)


async def test_a_page_opens_a_terminal(sandbox: HostSandbox) -> None:
    async with log_in(sandbox, "operator").open() as link:
        await link.send(bytes([STDIN]) + b"echo $((6 * 7)).\n")
        shown = b""
        while b"42." not in shown:
            shown += (await link.recv())[1:]


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:8080", "null", ""])
async def test_pages_of_others_open_none(sandbox: HostSandbox, origin: str) -> None:
    assert await read_status(log_in(sandbox, "operator").open(Origin=origin)) == 403


async def test_the_api_takes_no_cookie_for_it(sandbox: HostSandbox) -> None:
    visitor = log_in(sandbox, "operator")
    path = "/org/acme/gvc/shop/workload/web/-exec"
    assert await read_status(visitor.open(path)) == 403


async def test_without_the_permission_there_is_no_terminal(sandbox: HostSandbox) -> None:
    viewer = log_in(sandbox, "viewer")
    assert "Terminal" not in viewer.request("GET", "/ui/resource/workload/shop/web").text
    assert viewer.request("GET", EXEC).status_code == 403
    assert viewer.request("POST", EXEC, {"command": "id"}).status_code == 403
    assert await read_status(viewer.open()) == 403


async def test_a_logout_closes_the_terminal(sandbox: HostSandbox) -> None:
    visitor = log_in(sandbox, "operator")
    async with visitor.open() as link:
        [token] = {form.fields["form_token"] for form in visitor.read_forms() if form.action == "/ui/logout"}
        logout = await asyncio.to_thread(visitor.request, "POST", "/ui/logout", {"form_token": token})
        assert logout.status_code == 303
        await link.wait_closed()
    assert link.close_code == 1008


def test_a_form_runs_one_command(sandbox: HostSandbox) -> None:
    visitor = log_in(sandbox, "operator")
    shown = visitor.run("sh -c 'echo \"<b>$((6 * 7))</b>\"; echo \x1b[31mred >&2; exit 3'")
    assert "&lt;b&gt;42&lt;/b&gt;" in shown
    assert "exit code 3" in shown
    assert "\x1b" not in shown
    assert "It has ended<" in visitor.run("cat")
    assert "wrote too much" in visitor.run("yes")
    assert "cannot be read" in visitor.request("POST", EXEC, form_fields(visitor, "'")).text
    assert "type it" in visitor.request("POST", EXEC, form_fields(visitor, " ")).text
    assert "has no replica &#39;nix&#39;" in visitor.run("id", replica="nix")


def form_fields(visitor: Visitor, command: str) -> dict[str, str]:
    """The fields of the form for one command."""
    [form] = [form for form in visitor.read_forms() if form.action == EXEC]
    return form.fields | {"command": command}


def test_a_form_of_another_site_runs_nothing(sandbox: HostSandbox) -> None:
    visitor = log_in(sandbox, "operator")
    fields = form_fields(visitor, "id")
    assert visitor.request("POST", EXEC, fields | {"form_token": "x"}).status_code == 403
    for origin in ("http://evil.example", "null"):
        assert visitor.request("POST", EXEC, fields, Origin=origin).status_code == 403
