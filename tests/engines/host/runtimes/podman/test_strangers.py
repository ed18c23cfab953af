"""Numbers of processes from a Podman in another namespace: here they are those of strangers, who get no signal."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from reconciler.engines.host.runtimes.podman.api.attached import AttachedSession, _Link, _Program
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient
from reconciler.engines.host.runtimes.podman.exec import ExecRunner
from tests.engines.host.runtimes.podman.kit import place
from tests.engines.host.runtimes.podman.test_plugin import PODMAN

CONTAINER = "c" * 64


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this host that belongs to no container."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def podman(pid: int) -> PodmanClient:
    """A service whose session has a program with the number ``pid``, which never ends."""

    async def silence() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/start"):
            return httpx2.Response(200, content=silence())
        answer: dict[str, Any] = {"Id": "s"} if request.method == "POST" else {"Running": True, "Pid": pid}
        return httpx2.Response(200, content=json.dumps(answer).encode())

    return PodmanClient(Path("/nonexistent"), httpx2.MockTransport(handle))


async def test_a_late_program_of_another_namespace_costs_no_stranger_its_life(
    stranger: subprocess.Popen[bytes],
) -> None:
    client = podman(stranger.pid)
    execution = ExecRunner(client, msgspec.structs.replace(PODMAN, direct=False))
    found = await execution.run(CONTAINER, ["sleep"], 0.05)
    assert (found.code, found.timed_out) == (137, True)
    await client.close()
    with pytest.raises(subprocess.TimeoutExpired):
        stranger.wait(0.2)


async def test_a_session_that_is_closed_hangs_up_on_no_stranger(
    stranger: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    server = await asyncio.start_unix_server(lambda reader, writer: writer.close(), path)
    link = _Link(*await asyncio.open_unix_connection(path))
    session = AttachedSession(podman(stranger.pid), _Program(CONTAINER, "s"), place(), link, False)
    await session.close()
    server.close()
    with pytest.raises(subprocess.TimeoutExpired):
        stranger.wait(0.2)
