"""A process runtime on a directory of the test, ways to wait for it, and an independent view of /proc."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.engines.host.runtimes import cgroups
from reconciler.engines.host.runtimes.process import cgroup_tree
from reconciler.engines.host.runtimes.process.runtime import ProcessRuntime
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, RunningContainer
from reconciler.model.key import Key, Kind
from tests.support.programs import only_root, skip_unless
from tests.support.waiting import until

KEY = Key(Kind.WORKLOAD, "shop", "api")
IS_ROOT = os.geteuid() == 0
as_root = only_root("only root may do that")
# Several runs of the tests may try at the same time.
GROUPS = f"reconciler-test-{os.getpid()}"
with_groups = skip_unless(
    cgroup_tree.find_cgroup_tree(GROUPS, cgroups.list_mounts()) is not None, "no control groups may be made here"
)
both_ways = pytest.mark.parametrize(
    "limited", [pytest.param(True, marks=with_groups, id="groups"), pytest.param(False, id="plain")]
)


def place(replica: str = "r", container: str = "main") -> ContainerId:
    """A container of the workload of these tests."""
    return ContainerId(KEY, replica, container)


def launch(
    command: str, *args: str, of: ContainerId | None = None, env: dict[str, str] | None = None
) -> ContainerStart:
    """A start of a program, in the plainest way."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(env or {})}
    return ContainerStart(of or place(), 1, "hash", -1, command, args, variables)


def shell(script: str, of: ContainerId | None = None, **more: Any) -> ContainerStart:
    """A start of a shell that runs ``script``; ``more`` are fields of Launch."""
    return msgspec.structs.replace(launch("sh", "-c", script, of=of), **more)


class ProcessHarness:
    """One life of the daemon, as far as the runtime knows it. ``ended`` lists the ends that it has reported."""

    def __init__(self, root: Path, *, limited: bool = True) -> None:
        self.root = root
        self.runtime = ProcessRuntime(root, "here", SystemClock(), limited=limited)
        self.ended: list[ContainerId] = []

    async def running(self, of: ContainerId | None = None) -> RunningContainer:
        """What the runtime reports of a container."""
        return next(each for each in await self.runtime.list() if each.place == (of or place()))

    async def over(self, of: ContainerId | None = None) -> RunningContainer:
        """What it reports once the container has ended."""
        await until(lambda: (of or place()) in self.ended, f"the end of {of or place()}")
        found = await self.running(of)
        assert not found.alive
        return found

    def output(self, of: ContainerId | None = None) -> str:
        """What the container has written so far."""
        path = self.runtime.output(of or place())
        return path.read_text() if path.exists() else ""

    async def wrote(self, text: str, of: ContainerId | None = None) -> str:
        """All that it has written, once ``text`` is in it."""
        await until(lambda: text in self.output(of), f"{text!r} in the output {self.output(of)!r}")
        return self.output(of)

    async def number(self, of: ContainerId | None = None) -> int:
        """The number that the container has written first, in a line of its own."""
        await until(lambda: "\n" in self.output(of), "a line of output")
        return int(self.output(of).splitlines()[0])


@asynccontextmanager
async def opened(root: Path, *, limited: bool = True, keep: bool = False) -> AsyncIterator[ProcessHarness]:
    """A host that works; nothing of it is left at the end, unless ``keep``: then all goes on."""
    host = ProcessHarness(root, limited=limited)
    await host.runtime.open(host.ended.append)
    try:
        yield host
    finally:
        if not keep:
            for each in {(found.place.key, found.place.replica) for found in await host.runtime.list()}:
                await host.runtime.remove(*each)
        await host.runtime.close()


def alive(pid: int) -> bool:
    """Whether a process of that number is there, and not dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def marked(root: Path) -> list[int]:
    """All living processes that are marked as part of ``root``."""
    sign = f"RECONCILER_ROOT={root.resolve()}\0".encode()
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if sign in (folder / "environ").read_bytes() and alive(int(folder.name)):
                pids.append(int(folder.name))
        except OSError:
            continue
    return pids


def sleeping(root: Path) -> list[int]:
    """The processes of ``root`` that run sleep, once they are no longer shells.

    A shell calls it ``sleep``, the runtime by its whole path; a wrapper has both among its arguments.
    """
    return [pid for pid in marked(root) if (arguments := command(pid)) and Path(arguments[0]).name == "sleep"]


def command(pid: int) -> list[str]:
    """The command line of a process, empty after its end."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []
