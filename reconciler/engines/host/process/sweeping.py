"""Kills all that runs in containers, however it has hidden: looks again until a look finds nothing."""

from __future__ import annotations

import asyncio
import signal
import time

import msgspec

from reconciler.engines.host.process import cgroups, proc
from reconciler.engines.host.process.ends import lives
from reconciler.engines.host.process.marker import Marking
from reconciler.errors import EngineError

PATIENCE = 10.0
"""Seconds after which what SIGKILL does not end is given up."""
_PAUSE = 0.002


class Target(msgspec.Struct, frozen=True):
    """What to kill: all whose marker is ``marker``, or begins with it where it ends in a slash.

    Besides all in the sessions of ``wrappers`` (numbers and start times) and in ``groups``, and what descends from any.
    A session is known by its wrapper only, so it counts while nobody has let go of the wrapper's number.
    """

    marker: str
    wrappers: tuple[tuple[int, int], ...] = ()
    groups: tuple[str, ...] = ()


class Sweeper:
    """Kills for many at once: each look at all processes serves whoever asked before it began."""

    def __init__(self, marking: Marking) -> None:
        self._marking = marking
        self._waiting: dict[asyncio.Future[None], tuple[Target, float]] = {}
        self._task: asyncio.Task[None] | None = None

    async def sweep(self, target: Target) -> None:
        """Return when nothing of ``target`` is alive. Raises EngineError where SIGKILL does not end it."""
        done = asyncio.get_running_loop().create_future()
        self._waiting[done] = (target, time.monotonic() + PATIENCE)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._round()
        finally:
            for done in list(self._waiting):
                self._settle(done, EngineError("the search for processes to kill broke off", reason="NotEnded"))

    async def _round(self) -> None:
        asked = dict(self._waiting)
        left = await asyncio.to_thread(kill_once, self._marking, [target for target, _ in asked.values()])
        for (done, (target, deadline)), count in zip(asked.items(), left, strict=True):
            if not count:
                self._settle(done)
            elif time.monotonic() > deadline:
                why = f"{count} processes of {target.marker.strip('/')} do not end by SIGKILL"
                self._settle(done, EngineError(why, reason="NotEnded"))
        if any(left):
            await asyncio.sleep(_PAUSE)

    def _settle(self, done: asyncio.Future[None], error: Exception | None = None) -> None:
        self._waiting.pop(done, None)
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


def kill_once(marking: Marking, targets: list[Target]) -> list[int]:
    """Send SIGKILL to all that belongs to the targets now; returns how many each of them had. Blocks."""
    for target in targets:
        cgroups.kill(target.groups)
    procs = proc.everyone()
    marked = _marked(marking, procs, targets)
    sessions: dict[int, set[int]] = {}
    for each in procs.values():
        sessions.setdefault(each.session, set()).add(each.pid)
    counts = []
    for target in targets:
        found = set(marked.get(target.marker, ())) | cgroups.members(target.groups)
        for pid, start in target.wrappers:
            now = proc.look(pid)
            if now is None or now.start == start:
                found |= sessions.get(pid, set())
        seen = [procs.get(pid) or proc.look(pid) for pid in proc.below(procs, found)]
        alive = [one for one in seen if one is not None and one.alive]
        for one in alive:
            proc.signal_exactly(one, signal.SIGKILL)
        counts.append(len(alive))
    return counts


def _marked(marking: Marking, procs: dict[int, proc.Proc], targets: list[Target]) -> dict[str, set[int]]:
    wanted = {target.marker for target in targets}
    found: dict[str, set[int]] = {}
    for pid in procs:
        text = marking.text_in(proc.environment(pid) or b"")
        for marker in (text, text[: text.rfind("/") + 1]):
            if marker in wanted:
                found.setdefault(marker, set()).add(pid)
    return found


def is_ours(marking: Marking, pid: int, start: int, marker: str) -> bool:
    """Whether the process of this number is still the one that was started with ``marker``."""
    if not lives(pid, start):
        return False
    environment = proc.environment(pid)
    return environment is None or marking.text_in(environment) == marker
