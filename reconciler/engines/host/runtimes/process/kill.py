"""Kills all processes of containers, even hidden ones: scans repeatedly until a scan finds nothing."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Collection, Mapping

import msgspec

from reconciler.engines.host.runtimes import cgroups, procfs
from reconciler.engines.host.runtimes.exit_watch import is_alive
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.errors import EngineError
from reconciler.reasons import Reason

PATIENCE = 10.0
"""Seconds after which processes that survive SIGKILL are reported."""
_PAUSE = 0.002
_MAX_SCANS = 200
"""The most scans in a row for new processes; on a quiet host the second one finds none."""
_MOMENTS, _MOMENT = 50, 0.001
"""The number of scans that wait for a process in the middle of an exec, and the seconds between them."""


class KillTarget(msgspec.Struct, frozen=True):
    """Processes to kill: those with ``marker``, or with that prefix if it ends in a slash; none for "".

    Also all in the sessions of ``wrappers`` (numbers and start times) and in ``groups``, and all descendants. The
    wrapper identifies a session, so the session counts only while the wrapper's number is not reused.
    """

    marker: str
    wrappers: tuple[tuple[int, int], ...] = ()
    groups: tuple[str, ...] = ()


Mark = tuple[int, int]
"""The number of a process and its start time."""


class _Request(msgspec.Struct):
    target: KillTarget
    deadline: float
    left: frozenset[Mark] = frozenset()


class ProcessKiller:
    """Kills for many callers at once: each scan of all processes serves the callers that came before it began."""

    def __init__(self, labels: ProcessLabels) -> None:
        self._labels = labels
        self._waiting: dict[asyncio.Future[None], _Request] = {}
        self._task: asyncio.Task[None] | None = None

    async def kill(self, target: KillTarget) -> None:
        """Return when no process of ``target`` is alive. Raises EngineError if SIGKILL does not end one."""
        done = asyncio.get_running_loop().create_future()
        self._waiting[done] = _Request(target, time.monotonic() + PATIENCE)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._round()
        finally:
            for done in list(self._waiting):
                self._finish(done, EngineError("the search for processes to kill failed", reason=Reason.KILL_FAILED))

    async def _round(self) -> None:
        waiting = dict(self._waiting)
        targets = {request.target: request.left for request in waiting.values()}
        left = await asyncio.to_thread(kill_once, self._labels, targets)
        for done, asked in waiting.items():
            asked.left = left[asked.target]
            if not asked.left:
                self._finish(done)
            elif time.monotonic() > asked.deadline:
                why = f"{len(asked.left)} processes of {asked.target.marker.strip('/')} do not end by SIGKILL"
                self._finish(done, EngineError(why, reason=Reason.KILL_FAILED))
        if any(left.values()):
            await asyncio.sleep(_PAUSE)

    def _finish(self, done: asyncio.Future[None], error: Exception | None = None) -> None:
        self._waiting.pop(done, None)
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


def kill_once(
    labels: ProcessLabels, targets: Mapping[KillTarget, frozenset[Mark]]
) -> dict[KillTarget, frozenset[Mark]]:
    """Send SIGKILL to all processes of the targets; return the processes that it was sent to. Blocks.

    Living processes of the last scan belong to the target again, because a dying process has no environment. A process
    that forks and exits would always be ahead of a single scan. So new processes are scanned too, until a list of all
    processes contains no new one.
    """
    for target in targets:
        cgroups.kill_members(target.groups)
    target_marks = {target: {mark for mark in marks if is_alive(*mark)} for target, marks in targets.items()}
    seen: set[int] = set()
    for scan in range(_MAX_SCANS):
        numbers = procfs.list_pids() - seen
        if not numbers:
            break
        fresh = {proc.pid: proc for pid in numbers if (proc := procfs.find_process(pid)) is not None}
        marked, unsure = _group_by_marker(labels, fresh, targets)
        for target, mine in target_marks.items():
            roots = (
                marked.get(target.marker, set())
                | cgroups.list_members(target.groups)
                | _list_session_pids(target, fresh)
            )
            parents = {pid for pid, _ in mine}
            roots.update(process_info.pid for process_info in fresh.values() if process_info.parent in parents)
            alive = [fresh[pid] for pid in procfs.collect_descendants(fresh, roots) & fresh.keys() if fresh[pid].alive]
            mine.update((process_info.pid, process_info.start) for process_info in alive)
            for proc in [
                process_info for process_info in alive if (process_info.pid, process_info.start) not in target.wrappers
            ]:
                procfs.signal_exactly(proc, signal.SIGKILL)
        if scan < _MOMENTS and fresh.keys() <= unsure:
            time.sleep(_MOMENT)
        seen |= fresh.keys() - unsure if scan < _MOMENTS else fresh.keys()
    for target, mine in target_marks.items():
        if mine <= set(target.wrappers):
            _end_wrappers(mine)
    return {target: frozenset(mine) for target, mine in target_marks.items()}


def _end_wrappers(wrappers: Collection[Mark]) -> None:
    """Kill the wrappers last: while they live, orphans become their children and are found below them."""
    for pid, start in wrappers:
        if (now := procfs.find_process(pid)) is not None and now.start == start:
            procfs.signal_exactly(now, signal.SIGKILL)


def _list_session_pids(target: KillTarget, procs: dict[int, procfs.Proc]) -> set[int]:
    leaders = {pid for pid, start in target.wrappers if (now := procfs.find_process(pid)) is None or now.start == start}
    return {proc.pid for proc in procs.values() if proc.session in leaders} if leaders else set()


def _group_by_marker(
    labels: ProcessLabels, procs: dict[int, procfs.Proc], targets: Collection[KillTarget]
) -> tuple[dict[str, set[int]], set[int]]:
    # Processes by marker, and those whose marker is unknown at this moment.
    markers = {target.marker for target in targets} - {""}
    marked_pids: dict[str, set[int]] = {}
    unsure = set()
    for pid, process_info in procs.items():
        environment = procfs.read_environment(pid)
        if procfs.is_in_exec(process_info, environment):
            unsure.add(pid)
        text = labels.text_in(environment or b"")
        for marker in (text, text[: text.rfind("/") + 1]):
            if marker in markers:
                marked_pids.setdefault(marker, set()).add(pid)
    return marked_pids, unsure


def is_ours(labels: ProcessLabels, pid: int, start: int, marker: str) -> bool:
    """Whether the process is still the one that was started with ``marker``, as far as that is visible."""
    if not is_alive(pid, start):
        return False
    environment = procfs.read_environment(pid)
    return not environment or labels.text_in(environment) == marker
