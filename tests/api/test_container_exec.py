"""Programs in containers over a WebSocket: streams, terminals, exit codes, and clients that go."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

import httpx2
import pytest
from websockets.asyncio.client import unix_connect
from websockets.exceptions import ConnectionClosedOK, InvalidStatus

from reconciler.api.routes.container_exec import CLOSE, PROTOCOL, RESIZE, STATUS, STDIN, exit_status
from reconciler.daemon.api_process import SOCKET
from tests.support.host_sandbox import HostSandbox, host_sandbox, open_place, served
from tests.support.sandbox import eventually

WEB = "/org/acme/gvc/shop/workload/web"
MEBIBYTE = 1 << 20
BLOCK = 1 << 16


class SessionResult(NamedTuple):
    """The output of a program by channel, and its status."""

    output: dict[int, bytes]
    status: dict[str, object]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[HostSandbox]:
    """A daemon with a workload that runs."""
    files = {"shop/web.yaml": served(replicas=1, env={"GREETING": "hello"})}
    with open_place() as path, host_sandbox(path, files, api={}) as sandbox, sandbox.daemon():
        eventually(lambda: sandbox.ready("web"), "the replica is ready")
        eventually(lambda: (sandbox.state / SOCKET).exists(), "the API listens")
        yield sandbox


def place_of(path: str, words: Sequence[str], query: Mapping[str, str]) -> str:
    """The address at which ``words`` run in a container of the workload ``path``."""
    return f"ws://localhost{path}/-exec?{urlencode([*query.items(), *(('command', word) for word in words)])}"


def connect(sandbox: HostSandbox, *command: str, path: str = WEB, **query: str) -> Any:
    """A WebSocket on which ``command`` runs."""
    return unix_connect(str(sandbox.state / SOCKET), place_of(path, command, query), subprotocols=[PROTOCOL])


async def to_end(link: Any) -> SessionResult:
    """Everything that comes until the end."""
    output: dict[int, bytes] = {1: b"", 2: b""}
    status = {}
    async for message in link:
        assert isinstance(message, bytes)
        if message[0] == STATUS:
            status = json.loads(message[1:])
        else:
            output[message[0]] += message[1:]
    return SessionResult(output, status)


def run(sandbox: HostSandbox, command: Sequence[str], content: bytes = b"", **query: str) -> SessionResult:
    """A program with ``content`` as its input, to its end."""

    async def feed(link: Any) -> None:
        # A program that ends first takes no input.
        with suppress(ConnectionClosedOK):
            for begin in range(0, len(content), BLOCK):
                await link.send(bytes([STDIN]) + content[begin : begin + BLOCK])
            await link.send(bytes([CLOSE, STDIN]))

    async def story() -> SessionResult:
        async with connect(sandbox, *command, **query) as link:
            return (await asyncio.gather(to_end(link), feed(link)))[0]

    return asyncio.run(story())


def test_both_outputs_and_the_exit_code_arrive(sandbox: HostSandbox) -> None:
    found = run(sandbox, ["sh", "-c", 'echo "$GREETING"; echo bad >&2; exit 3'])
    assert found == SessionResult({1: b"hello\n", 2: b"bad\n"}, exit_status(3))
    assert run(sandbox, ["true"]).status == {"metadata": {}, "status": "Success"}
    assert run(sandbox, ["sh", "-c", "exit 255"]).status == exit_status(255)
    assert run(sandbox, ["/nowhere"]).status == exit_status(127)


def test_a_mebibyte_comes_back_as_it_went(sandbox: HostSandbox) -> None:
    content = os.urandom(MEBIBYTE)
    assert run(sandbox, ["cat"], content).output[1] == content


async def test_a_terminal_has_its_size_and_gets_another_one(sandbox: HostSandbox) -> None:
    async def story() -> SessionResult:
        async with connect(sandbox, "sh", tty="true", rows="40", columns="132") as link:
            await link.send(bytes([STDIN]) + b"stty size\n")
            shown = b""
            while b"40 132" not in shown:
                shown += cast(bytes, await link.recv())[1:]
            await link.send(bytes([RESIZE]) + b'{"Width": 99, "Height": 33}')
            await link.send(bytes([STDIN]) + b"stty size; exit 7\n")
            return await to_end(link)

    found = await story()
    assert b"33 99" in found.output[1]
    assert found.status == exit_status(7)


def is_running(words: str) -> bool:
    """Whether a process has these words."""
    command_lines = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command_lines.append(each.read_bytes())
    return words.encode().replace(b" ", b"\0") + b"\0" in command_lines


async def test_a_program_ends_with_its_client(sandbox: HostSandbox) -> None:
    async with connect(sandbox, "sleep", "987.25") as link:
        await asyncio.to_thread(eventually, lambda: is_running("sleep 987.25"), "the program runs")
        link.transport.abort()
    eventually(lambda: not is_running("sleep 987.25"), "the program has ended")


def test_what_cannot_run_is_refused_before_the_websocket_opens(sandbox: HostSandbox) -> None:
    assert refusal(sandbox, WEB.replace("web", "none")) == 404
    assert refusal(sandbox, WEB, replica="none") == 404
    assert refusal(sandbox, WEB, container="none") == 404
    assert refusal(sandbox, "/org/acme/gvc/shop/identity/web") == 404
    address = str(sandbox.state / SOCKET)
    assert status_of(unix_connect(address, place_of(WEB, ["true"], {}), origin="https://evil.example")) == 403
    assert status_of(unix_connect(address, f"ws://localhost{WEB}")) == 400
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(sandbox.state / SOCKET))) as client:
        assert client.get(f"http://localhost{WEB}/-exec").status_code == 400
        assert client.get(f"http://localhost{WEB}/-replica").json()["items"][0]["state"] == "Ready"


def refusal(sandbox: HostSandbox, path: str, **query: str) -> int:
    """The status of an answer that opens no WebSocket."""
    return status_of(connect(sandbox, "true", path=path, **query))


def status_of(connecting: Any) -> int:
    """The status of the answer, which has a message."""

    async def story() -> None:
        async with connecting:
            pass

    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(story())
    assert json.loads(refused.value.response.body or b"")["message"]
    return refused.value.response.status_code
