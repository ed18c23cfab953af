"""A Podman runtime on a directory of the test, over a real service or one in memory."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from reconciler.clock import Clock, SystemClock
from reconciler.engines.host.runtimes.podman.runtime import PodmanRuntime
from reconciler.engines.host.runtimes.podman.tracked import Tracked
from reconciler.engines.host.runtimes.podman.tracking import TrackedContainers
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, RunningContainer
from reconciler.model.key import Key, Kind
from tests.support.waiting import until

KEY = Key(Kind.WORKLOAD, "shop", "api")
IMAGE = "localhost/reconciler-test:1"


def place(replica: str = "r", container: str = "main") -> ContainerId:
    """A container of the workload of these tests."""
    return ContainerId(KEY, replica, container)


def launch(*args: str, at: ContainerId | None = None, command: str = "", **more: Any) -> ContainerStart:
    """A start of a container of the test image; ``more`` are fields of ContainerStart."""
    start = ContainerStart(at or place(), 1, "hash", -1, command, args, {}, image=IMAGE)
    return msgspec.structs.replace(start, **more)


def shell(script: str, at: ContainerId | None = None, **more: Any) -> ContainerStart:
    """A start of a shell that runs ``script``."""
    return launch("-c", script, at=at, command="/bin/sh", **more)


class PodmanHarness:
    """One life of the daemon, as far as the runtime knows it. ``ended`` lists the reported ends."""

    def __init__(
        self, root: Path, socket: Path, transport: httpx2.AsyncBaseTransport | None, clock: Clock | None
    ) -> None:
        self.root = root
        self.runtime = PodmanRuntime(root, "here", clock or SystemClock(), socket, transport)
        self.ended: list[ContainerId] = []

    @property
    def containers(self) -> TrackedContainers:
        """What the open runtime tracks."""
        assert self.runtime._open is not None
        return self.runtime._open.containers

    async def running(self, at: ContainerId | None = None) -> RunningContainer:
        """The container as the runtime lists it."""
        return next(each for each in await self.runtime.list() if each.place == (at or place()))

    async def over(self, at: ContainerId | None = None) -> RunningContainer:
        """The container once its end is reported."""
        await until(lambda: (at or place()) in self.ended, f"the end of {at or place()}")
        found = await self.running(at)
        assert not found.alive
        return found

    def tracked(self, at: ContainerId) -> Tracked:
        """What the runtime knows of a container; of a sandbox under the container ""."""
        found = self.containers.get(at)
        assert found is not None
        return found

    def output(self, at: ContainerId | None = None) -> str:
        """The content of the output, without the times and names of streams that conmon adds."""
        path = self.runtime.output(at or place())
        lines = [line.split(" ", 3) for line in path.read_text().splitlines()] if path.exists() else []
        return "".join(text + ("\n" if whole == "F" else "") for _, _, whole, text in lines)

    async def wrote(self, text: str, at: ContainerId | None = None) -> str:
        """The output once ``text`` is in it."""
        await until(lambda: text in self.output(at), f"{text!r} in the output {self.output(at)!r}")
        return self.output(at)


@asynccontextmanager
async def opened(
    root: Path,
    socket: Path,
    transport: httpx2.AsyncBaseTransport | None = None,
    *,
    clock: Clock | None = None,
    keep: bool = False,
) -> AsyncIterator[PodmanHarness]:
    """A host that works; at the end nothing of it remains, unless ``keep``: then all goes on."""
    host = PodmanHarness(root, socket, transport, clock)
    await host.runtime.open(host.ended.append)
    try:
        yield host
    finally:
        if not keep:
            await host.runtime.prune(())
        await host.runtime.close()


def drop_rules(pid: int) -> int:
    """How many rules drop the packets of user 1337 in the network namespace of ``pid``."""
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", "nft", "list", "table", "inet", "reconciler"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return listed.stdout.count("skuid 1337 drop")
