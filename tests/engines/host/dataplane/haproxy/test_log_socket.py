"""The log socket of HAProxy as other users of the host find it, and as HAProxy does."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.dataplane.haproxy.config import LOG_SOCKET, backend_name
from reconciler.model.key import Key, Kind
from tests.engines.host.dataplane.haproxy.kit import KEY, OTHER, SERVICE, Plane, WebReplica, end, get, play
from tests.engines.host.dataplane.kit import until
from tests.support.host_sandbox import open_place
from tests.support.programs import only_root, tool
from tests.support.waiting import PATIENCE

STRANGER, PROXY = 65_534, 54_321
"""The user of a workload, and the one that HAProxy runs as."""

SEND = """
import os, socket, sys
user, path, *lines = sys.argv[1:]
if int(user) >= 0:
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    for line in lines:
        sender.sendto(line.encode(), path)
"""
MEASURED = msgspec.structs.replace(SERVICE, measures_latency=True)
NONE = Key(Kind.WORKLOAD, "nope", "nope")
FORGED = (
    "hold shop:api",
    "request shop:web forged 200 0 0 9000 GET - /",
    f"request shop:web forged 200 0 0 {'9' * 400} GET - /",
    "request shop:web web-0 503 0 0 1 GET FORGED-ID /forged",
    "request nope:nope web-0 503 0 0 1 GET FORGED-ID /forged",
)


ONE_LINE = 2.0
"""Seconds until the line of a request is there, if it comes at all."""


class MeasuredPlane(Plane):
    """A data plane with the replicas that were measured. HAProxy is another user's, as under a daemon of root."""

    def __init__(self, path: Path, user: tuple[int, int] | None = (PROXY, PROXY)) -> None:
        super().__init__(path, user=user)
        self.samples: list[tuple[Key, str]] = []
        self.dataplane.listen(lambda key, name, _milliseconds: self.samples.append((key, name)))

    async def start(self) -> str:
        """Serve one workload that is measured, and one that has no replica."""
        address = await self.address(MEASURED, await WebReplica("real").start())
        await self.serve(msgspec.structs.replace(SERVICE, key=OTHER))
        return address

    async def measured(self, address: str) -> None:
        """Return when a request has been measured; all that was sent before is read then.

        A request that a worker answers just before it ends, as at a reload, is not: its sender cannot be proven then.
        """
        before = len(self.samples)

        async def another() -> bool:
            assert (await get(address)).status == 200
            with suppress(TimeoutError):
                async with asyncio.timeout(ONE_LINE):
                    await until(lambda: len(self.samples) > before)
            return len(self.samples) > before

        async with asyncio.timeout(PATIENCE):
            while not await another():
                pass

    async def send(self, *lines: str, user: int | None = None) -> str:
        """Send ``lines`` as a process of ``user``; its errors. It waits while the queue is full."""
        return await asyncio.to_thread(send, self.directory / LOG_SOCKET, *lines, user=user)


def send(path: Path, *lines: str, user: int | None = None) -> str:
    """Send ``lines`` to ``path`` from a process of its own; its errors."""
    # The interpreter may lie where the user does not get to, so it becomes that user by itself.
    command = [sys.executable, "-I", "-c", SEND, f"{-1 if user is None else user}", str(path), *lines]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def pipes() -> list[str]:
    """The pipes that this process has open."""
    found = (Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return sorted(str(os.readlink(each)) for each in found if each.is_symlink() and "pipe" in str(os.readlink(each)))


@pytest.fixture
def path() -> Iterator[Path]:
    """A directory that every user gets to, whose HAProxy ends after the test."""
    tool("haproxy", "haproxy")
    with open_place() as found:
        yield found
        end(found)


@only_root("only root gives HAProxy a user of its own")
@pytest.mark.parametrize("user", [STRANGER, PROXY, None], ids=["another user", "the user of haproxy", "root"])
def test_no_process_but_haproxy_is_believed(path: Path, user: int | None) -> None:
    async def story(plane: Plane) -> None:
        assert isinstance(plane, MeasuredPlane)
        address = await plane.start()
        errors = await plane.send(*FORGED, user=user)
        assert ("Permission denied" in errors) == (user == STRANGER), errors
        await plane.measured(address)
        assert set(plane.samples) == {(KEY, "real")}
        assert (plane.woken, plane.lines) == ([], [])

    play(lambda: MeasuredPlane(path), story)


def test_a_process_of_the_same_user_is_not_believed_either(path: Path) -> None:
    async def story(plane: Plane) -> None:
        assert isinstance(plane, MeasuredPlane)
        address = await plane.start()
        assert not await plane.send(*FORGED)
        await plane.measured(address)
        assert set(plane.samples) == {(KEY, "real")}
        assert (plane.woken, plane.lines) == ([], [])

    play(lambda: MeasuredPlane(path, user=None), story)


@only_root("only root gives HAProxy a user of its own")
def test_lines_of_haproxy_arrive_through_reloads_restarts_and_an_upgrade(path: Path) -> None:
    socket_path = path / "haproxy" / LOG_SOCKET

    async def story(plane: Plane) -> None:
        assert isinstance(plane, MeasuredPlane)
        address = await plane.start()
        found = socket_path.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (PROXY, 0o600)
        await plane.measured(address)
        await plane.reload()
        await plane.measured(address)
        refused = await get(await plane.serve(msgspec.structs.replace(SERVICE, key=NONE)), "Host: web, web")
        assert refused.status == 400

    play(lambda: MeasuredPlane(path), story)
    # An older version left a socket that all users could write to.
    socket_path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as former:
        former.bind(str(socket_path))
        socket_path.chmod(0o666)
        play(lambda: MeasuredPlane(path), story)


def test_lines_about_workloads_that_are_not_served_count_for_nothing(path: Path) -> None:
    async def story(plane: Plane) -> None:
        assert isinstance(plane, MeasuredPlane)
        address = await plane.start()
        log = plane.dataplane._log
        log._senders.admit = lambda _pid, _user: True  # type: ignore[method-assign]
        lines = [f"request nope:n{number} a 503 0 0 1 GET id /" for number in range(100)]
        assert not await plane.send(*lines, "request _2e_2e:x a 503 0 0 1 GET id /", f"hold {backend_name(NONE)}")
        await plane.measured(address)
        assert set(plane.samples) == {(KEY, "real")}
        assert (plane.woken, plane.lines) == ([], [])

    play(lambda: MeasuredPlane(path, user=None), story)


def test_descriptors_that_are_sent_are_not_taken(path: Path) -> None:
    async def story(plane: Plane) -> None:
        assert isinstance(plane, MeasuredPlane)
        address = await plane.start()
        await plane.measured(address)
        before = pipes()
        ends = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(str(plane.directory / LOG_SOCKET))
            for _ in range(5):
                socket.send_fds(sender, [b"hold shop:api"], ends)
        await plane.measured(address)
        for end_of_pipe in ends:
            os.close(end_of_pipe)
        assert pipes() == before

    play(lambda: MeasuredPlane(path, user=None), story)
