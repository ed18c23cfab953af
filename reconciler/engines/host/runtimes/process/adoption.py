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
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.engines.host.runtimes.process.spawn import is_wrapper
from reconciler.engines.host.runtimes.process.state_dir import StartRecord, StateDirectory
from reconciler.engines.host.runtimes.protocol import RunningContainer

_PATIENCE = 1.0
_PAUSE = 0.002


class Discovery(msgspec.Struct, frozen=True):
    """Containers that run, those that have ended, and the markers of processes that belong to neither."""

    alive: tuple[StartRecord, ...]
    over: tuple[StartRecord, ...]
    strays: tuple[str, ...]


def discover(folders: StateDirectory, marking: ProcessLabels, clock: Clock) -> Discovery:
    """What there is of the location, by the records and by the markers of processes. Blocks."""
    boot = procfs.boot_id()
    alive: list[StartRecord] = []
    over: list[StartRecord] = []
    for begun in folders.every():
        if is_start_alive(marking, begun, boot):
            alive.append(begun)
        elif folders.began(begun.place):
            over.append(begun)
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
    return Discovery(tuple(alive), tuple(over), tuple(sorted(strays - found)))


def is_start_alive(marking: ProcessLabels, begun: StartRecord, boot: str) -> bool:
    """Whether what was started still runs.

    The number of the boot does not decide alone: in a container of systemd, a service and whoever looks on read two.
    """
    text = marking.text(begun.place)
    if begun.boot == boot:
        return is_ours(marking, begun.pid, begun.start, text)
    return lives(begun.pid, begun.start) and marking.text_in(procfs.environment(begun.pid) or b"") == text


def running_of(begun: StartRecord, folders: StateDirectory, killed: bool = False) -> RunningContainer:
    """How a container ended; ``killed``: by us, whatever its memory had to do with it before."""
    code = folders.code(begun.place)
    reason = "Completed" if code.number == 0 else "Error"
    if code.failed:
        reason = "StartFailed"
    elif code.number == KILLED and not killed and cgroups.out_of_memory(begun.groups):
        reason = "OutOfMemory"
    return RunningContainer(
        begun.place,
        begun.version,
        begun.config_hash,
        begun.index,
        False,
        begun.started,
        code.number,
        reason,
        begun.ports,
    )


def signal_program(begun: StartRecord, number: int) -> None:
    """Send a signal to the program that the wrapper runs; blocks while it is about to begin it, for a second at most.

    Before it has begun, the signal would go to what is still a part of the wrapper, and be lost.
    """
    deadline = time.monotonic() + _PATIENCE
    while lives(begun.pid, begun.start):
        found = [each for pid in procfs.children(begun.pid) if (each := procfs.look(pid)) is not None]
        # Later children of the wrapper are what its program has orphaned.
        program = min(found, key=lambda each: each.start, default=None)
        begun_it = program is not None and procfs.command_line(program.pid) and not is_wrapper(program.pid, begun.place)
        if begun_it or time.monotonic() > deadline:
            if program is not None:
                procfs.signal_exactly(program, number)
            return
        time.sleep(_PAUSE)


def _unrecorded(each: procfs.Proc, environment: bytes, marking: ProcessLabels, clock: Clock) -> StartRecord | None:
    marker = marking.marker_in(environment)
    if marker is None or each.pid != each.session or not is_wrapper(each.pid, marker.place):
        return None
    started = clock.monotonic() - procfs.age(each)
    groups = groups_of(each.pid)
    return StartRecord(
        marker.place,
        marker.version,
        marker.config_hash,
        marker.index,
        each.pid,
        each.start,
        "",
        started,
        groups,
        marker.ports,
    )
