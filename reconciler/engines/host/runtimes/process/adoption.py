"""Finds containers again after a restart of the daemon, and the program below a wrapper."""

from __future__ import annotations

import time

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.runtimes.process import cgroups, procfs
from reconciler.engines.host.runtimes.process.cgroup_tree import groups_of
from reconciler.engines.host.runtimes.process.exec import KILLED
from reconciler.engines.host.runtimes.process.exit_watch import lives
from reconciler.engines.host.runtimes.process.kill import is_ours
from reconciler.engines.host.runtimes.process.labels import Marking
from reconciler.engines.host.runtimes.process.spawn import is_wrapper
from reconciler.engines.host.runtimes.process.state_dir import Begun, Folders
from reconciler.engines.host.runtimes.protocol import Running

_PATIENCE = 1.0
_PAUSE = 0.002


class Found(msgspec.Struct, frozen=True):
    """Containers that run, those that have ended, and the markers of processes that belong to neither."""

    alive: tuple[Begun, ...]
    over: tuple[Begun, ...]
    strays: tuple[str, ...]


def look_around(folders: Folders, marking: Marking, clock: Clock) -> Found:
    """What there is of the location, by the records and by the markers of processes. Blocks."""
    boot = procfs.boot_id()
    alive: list[Begun] = []
    over: list[Begun] = []
    for begun in folders.every():
        ours = begun.boot == boot and is_ours(marking, begun.pid, begun.start, marking.text(begun.place))
        (alive if ours else over).append(begun)
    known = {marking.text(begun.place) for begun in [*alive, *over]}
    strays: set[str] = set()
    for each in procfs.everyone().values():
        environment = procfs.environment(each.pid) or b""
        text = marking.text_in(environment)
        if not text or text in known:
            continue
        if (begun_ := _unrecorded(each, environment, marking, clock)) is None:
            strays.add(text)
        else:
            alive.append(msgspec.structs.replace(begun_, boot=boot))
    found = {marking.text(begun.place) for begun in alive}
    return Found(tuple(alive), tuple(over), tuple(sorted(strays - found)))


def running_of(begun: Begun, folders: Folders, killed: bool = False) -> Running:
    """How a container ended; ``killed``: by us, whatever its memory had to do with it before."""
    code = folders.code(begun.place)
    reason = "Completed" if code.number == 0 else "Error"
    if code.failed:
        reason = "NotStarted"
    elif code.number == KILLED and not killed and cgroups.out_of_memory(begun.groups):
        reason = "OutOfMemory"
    return Running(begun.place, begun.version, begun.stamp, begun.index, False, begun.started, code.number, reason)


def signal_program(begun: Begun, number: int) -> None:
    """Send a signal to the program that the wrapper runs; blocks while it is about to begin it, for a second at most.

    Before it has begun, the signal would go to what is still a part of the wrapper, and be lost.
    """
    deadline = time.monotonic() + _PATIENCE
    while lives(begun.pid, begun.start):
        found = [each for pid in procfs.children(begun.pid) if (each := procfs.look(pid)) is not None]
        programs = [each for each in found if procfs.command_line(each.pid) and not is_wrapper(each.pid)]
        if programs or time.monotonic() > deadline:
            for each in programs or found:
                procfs.signal_exactly(each, number)
            return
        time.sleep(_PAUSE)


def _unrecorded(each: procfs.Proc, environment: bytes, marking: Marking, clock: Clock) -> Begun | None:
    marker = marking.marker_in(environment)
    if marker is None or each.pid != each.session or not is_wrapper(each.pid):
        return None
    started = clock.monotonic() - procfs.age(each)
    groups = groups_of(each.pid)
    return Begun(marker.place, marker.version, marker.stamp, marker.index, each.pid, each.start, "", started, groups)
