"""Finds containers again after a restart of the daemon, and the program below a wrapper."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.runtimes import cgroups, procfs
from reconciler.engines.host.runtimes.exit_watch import is_alive
from reconciler.engines.host.runtimes.process.cgroup_tree import groups_of, name_for
from reconciler.engines.host.runtimes.process.exec import KILLED
from reconciler.engines.host.runtimes.process.kill import is_ours
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.engines.host.runtimes.process.spawn import group_name, is_wrapper
from reconciler.engines.host.runtimes.process.state_dir import StartRecord, StateDirectory
from reconciler.engines.host.runtimes.protocol import ContainerId, RunningContainer
from reconciler.reasons import Reason

_PATIENCE = 1.0
_PAUSE = 0.002


class Discovery(msgspec.Struct, frozen=True):
    """Running containers, ended ones, and the markers of processes that belong to neither."""

    alive: tuple[StartRecord, ...]
    over: tuple[StartRecord, ...]
    strays: tuple[str, ...]


def discover_containers(folders: StateDirectory, labels: ProcessLabels, clock: Clock) -> Discovery:
    """Find the containers of the location, by the records and by the markers of processes. Blocks."""
    boot = procfs.boot_id()
    alive: list[StartRecord] = []
    over: list[StartRecord] = []
    for begun in folders.records():
        if is_start_alive(labels, begun, boot):
            alive.append(begun)
        elif folders.began(begun.place):
            over.append(begun)
    markers = {labels.text(begun.place) for begun in [*alive, *over]}
    strays: set[str] = set()
    for list_process_ in procfs.list_processes().values():
        environment = procfs.read_environment(list_process_.pid) or b""
        text = labels.text_in(environment)
        if not text or text in markers:
            continue
        if (unrecorded := _read_marker(list_process_, environment, labels, clock)) is None:
            strays.add(text)
        else:
            alive.append(msgspec.structs.replace(unrecorded, boot=boot))
    names = {labels.text(begun.place) for begun in alive}
    return Discovery(tuple(alive), tuple(over), tuple(sorted(strays - names)))


def is_start_alive(labels: ProcessLabels, begun: StartRecord, boot: str) -> bool:
    """Whether the started container still runs.

    The boot id alone does not decide: in a systemd container, a service and other processes read different ones.
    """
    text = labels.text(begun.place)
    if begun.boot == boot:
        return is_ours(labels, begun.pid, begun.start, text)
    return is_alive(begun.pid, begun.start) and labels.text_in(procfs.read_environment(begun.pid) or b"") == text


def running_of(begun: StartRecord, folders: StateDirectory, killed: bool = False) -> RunningContainer:
    """How a container ended. If we ``killed`` it, the reason is never OutOfMemory."""
    code = folders.code(begun.place)
    reason = Reason.COMPLETED if code.number == 0 else Reason.ERROR
    if code.failed:
        reason = Reason.START_FAILED
    elif code.number == KILLED and not killed and cgroups.out_of_memory(begun.groups):
        reason = Reason.OUT_OF_MEMORY
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
    """Send a signal to the program of the wrapper; waits up to a second if the program is about to begin.

    Before that, the signal would reach a part of the wrapper and be lost.
    """
    deadline = time.monotonic() + _PATIENCE
    while is_alive(begun.pid, begun.start):
        process_infos = [
            process_info
            for pid in procfs.list_children(begun.pid)
            if (process_info := procfs.find_process(pid)) is not None
        ]
        # Later children of the wrapper are orphans of its program.
        program = min(process_infos, key=lambda process_info: process_info.start, default=None)
        has_begun = (
            program is not None and procfs.command_line(program.pid) and not is_wrapper(program.pid, begun.place)
        )
        if has_begun or time.monotonic() > deadline:
            if program is not None:
                procfs.signal_exactly(program, number)
            return
        time.sleep(_PAUSE)


def _read_marker(
    process_info: procfs.Proc, environment: bytes, labels: ProcessLabels, clock: Clock
) -> StartRecord | None:
    marker = labels.marker_in(environment)
    if marker is None or process_info.pid != process_info.session or not is_wrapper(process_info.pid, marker.place):
        return None
    groups = groups_of(process_info.pid)
    if not _is_proven(process_info, marker.place, groups, labels):
        return None
    started = clock.monotonic() - procfs.compute_process_age(process_info)
    return StartRecord(
        marker.place,
        marker.version,
        marker.config_hash,
        marker.index,
        process_info.pid,
        process_info.start,
        "",
        started,
        groups,
        marker.ports,
    )


def _is_proven(
    process_info: procfs.Proc, container_id: ContainerId, groups: Sequence[str], labels: ProcessLabels
) -> bool:
    """Whether the daemon started the process as ``container_id``: its environment and title are its own words.

    Only the daemon moves processes into the group of a container. One in no group has to be of the daemon's own user.
    """
    if groups:
        tree = name_for(labels.root)
        return all(Path(group).name == group_name(container_id) and Path(group).parent.name == tree for group in groups)
    return procfs.user_of(process_info.pid) == os.geteuid()
