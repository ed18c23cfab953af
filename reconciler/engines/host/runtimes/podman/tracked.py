"""A container as the daemon knows it: its processes on this host, and how it ended."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.runtimes import cgroups, procfs
from reconciler.engines.host.runtimes.exit_watch import is_alive
from reconciler.engines.host.runtimes.podman.api.answers import Attachment, Inspected
from reconciler.engines.host.runtimes.podman.labels import Labelled
from reconciler.engines.host.runtimes.protocol import RunningContainer
from reconciler.reasons import Reason

KILLED = 128 + signal.SIGKILL


class HostProcess(msgspec.Struct, frozen=True):
    """A process of this host; ``start`` in ticks distinguishes it from a later one of its number. 0: not visible."""

    pid: int = 0
    start: int = 0

    @property
    def alive(self) -> bool:
        """Whether it is visible and alive."""
        return self.pid > 0 and is_alive(self.pid, self.start)


class Tracked(msgspec.Struct, frozen=True):
    """A container as the daemon knows it. ``groups`` are its control groups; ``upper`` is what it writes to itself.

    ``monitor`` is its conmon. ``network`` has the address of a sandbox; ``image`` is the ID of its
    image.
    """

    id: str
    labelled: Labelled
    running: RunningContainer
    program: HostProcess = HostProcess()
    monitor: HostProcess = HostProcess()
    groups: tuple[str, ...] = ()
    upper: str = ""
    network: Attachment = Attachment()
    image: str = ""

    def as_ended(self, outcome: ContainerOutcome, *, killed: bool = False) -> Tracked:
        """The same container, ended; if we ``killed`` it, memory was not the reason."""
        reason = Reason.COMPLETED if outcome.code == 0 else Reason.ERROR
        if outcome.out_of_memory and outcome.code == KILLED and not killed:
            reason = Reason.OUT_OF_MEMORY
        running = msgspec.structs.replace(self.running, alive=False, code=outcome.code, reason=reason)
        return msgspec.structs.replace(self, running=running)


class ContainerOutcome(msgspec.Struct, frozen=True):
    """How a container ended; ``code`` is None if nothing recorded it."""

    code: int | None
    out_of_memory: bool = False


def track_container(inspected: Inspected, labelled: Labelled, started: float) -> Tracked:
    """A container that runs, with its processes as far as they are visible from here, or one that has ended."""
    tracked = Tracked(inspected.id, labelled, running_container(labelled, started))
    if not inspected.running:
        code = inspected.state.exit_code
        return tracked.as_ended(ContainerOutcome(code if code >= 0 else None, inspected.state.oom_killed))
    program = _host_process(inspected.state.pid)
    groups = _groups_of(inspected.id, program.pid) if program.pid else ()
    # Without one, another process has this number in our namespace.
    monitor = _host_process(inspected.state.conmon_pid) if groups else HostProcess()
    return Tracked(
        inspected.id,
        labelled,
        tracked.running,
        program if groups else HostProcess(),
        monitor,
        groups,
        inspected.upper,
        next(iter((inspected.network_settings.networks or {}).values()), Attachment()),
        inspected.image,
    )


def running_container(labelled: Labelled, started: float) -> RunningContainer:
    """A container with these labels, which has run since ``started``."""
    names = (labelled.place, labelled.version, labelled.config_hash, labelled.index)
    return RunningContainer(*names, alive=True, started=started, ports=labelled.ports, image=labelled.image)


def signal_program(container: str, pid: int, number: int) -> None:
    """Send a signal to a program of the container with that ID, if ``pid`` is one; Podman may be in another namespace.

    There a stranger of this host can have this number: only a control group of the container shows whose process it is.
    """
    if pid <= 0:
        return
    with suppress(OSError):
        # After the check, another process can have the number, but not the descriptor.
        descriptor = os.pidfd_open(pid)
        try:
            if _groups_of(container, pid):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def is_of_container(container: str, pid: int) -> bool:
    """Whether the process ``pid`` of this host is one of the container with that ID."""
    return pid > 0 and bool(_groups_of(container, pid))


def _groups_of(container: str, pid: int) -> tuple[str, ...]:
    """The control groups of the container that a process is in; none if it belongs to something else."""
    return tuple(filter(None, (_group_of(container, mounted.own) for mounted in cgroups.list_mounts(pid))))


def _group_of(container: str, own: Path) -> str:
    """The control group of a container that contains ``own``; "" if none does."""
    return next((str(path) for path in (own, *own.parents) if container in path.name), "")


def _host_process(pid: int) -> HostProcess:
    process_info = procfs.find_process(pid) if pid > 0 else None
    return HostProcess(pid, process_info.start) if process_info is not None and process_info.alive else HostProcess()
