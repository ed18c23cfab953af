"""The log of the executions of one cron workload, as a value."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from reconciler.engines.workload.status import ExecutionState
from reconciler.engines.workload_commands import ContainerOverride
from reconciler.reasons import Reason

MOST_SPANS = 16
"""Spans of handled minutes that are remembered."""

Events = list[tuple[Reason, str]]


class ExecutionEntry(msgspec.Struct, frozen=True):
    """One execution. ``started`` and ``completed`` are in seconds since the epoch, ``completed`` is 0 while it runs.

    ``boot`` is the boot id of the machine when it began. ``on_demand`` executions ignore the concurrency policy;
    ``command_id`` is the command that requested one. ``due`` is when it should start, in seconds since the epoch.
    ``running`` are the containers that ran when a later time was due.
    """

    name: str
    version: int
    started: float
    state: ExecutionState = ExecutionState.ACTIVE
    completed: float = 0.0
    reason: str = ""
    message: str = ""
    boot: str = ""
    on_demand: bool = False
    overrides: tuple[ContainerOverride, ...] = ()
    command_id: str = ""
    due: float = 0.0
    running: tuple[str, ...] = ()


class ExecutionLog(msgspec.Struct, frozen=True):
    """The executions of one workload, oldest first.

    ``checked`` is the last minute since the epoch that was handled under ``schedule``, which is "" while suspended.
    All due minutes from ``begun`` to ``checked`` were handled as they came. ``handled`` are earlier such spans, each
    with its first and last minute: between them the clock was set, or no daemon ran.
    ``skipped`` counts the times in a row that were skipped because an execution still ran, ``replaced`` the executions
    in a row that were replaced before their end, ``failures`` those that failed in a row.
    """

    schedule: str = ""
    checked: int = 0
    skipped: int = 0
    replaced: int = 0
    failures: int = 0
    begun: int = 0
    handled: tuple[tuple[int, int], ...] = ()
    entries: tuple[ExecutionEntry, ...] = ()

    @property
    def active(self) -> tuple[ExecutionEntry, ...]:
        """The executions that have not ended."""
        return tuple(entry for entry in self.entries if entry.state is ExecutionState.ACTIVE)

    def at(self, minute: int, schedule: str) -> ExecutionLog:
        """The log when ``schedule`` goes on, or begins, at ``minute`` without what lies between."""
        former = (*self.handled, (self.begun or self.checked, self.checked))[-MOST_SPANS:]
        # What another schedule handled is not handled under this one.
        handled = former if schedule == self.schedule else ()
        return replace(self, schedule=schedule, checked=minute, begun=minute, handled=handled)

    def caught_up(self, minute: int) -> ExecutionLog:
        """The log at ``minute`` without a gap that was handled before the clock was behind for a moment."""
        last = max((last for _, last in self.handled if last <= minute), default=self.checked)
        return self.at(last, self.schedule) if last > self.checked else self

    def has_handled(self, minute: int) -> bool:
        """Whether ``minute`` was due before, when the clock was ahead."""
        return any(first <= minute <= last for first, last in self.handled)


def end_entry(entry: ExecutionEntry, state: ExecutionState, reason: str, message: str, wall: float) -> ExecutionEntry:
    """``entry`` after its end; the values of its overrides are not stored any longer."""
    # A clock that was set back must not let the end precede the start.
    return replace(
        entry, state=state, reason=str(reason), message=message, completed=max(wall, entry.started), overrides=()
    )


def trim_entries(entries: tuple[ExecutionEntry, ...], limit: int) -> tuple[ExecutionEntry, ...]:
    """``entries`` without the oldest ended ones beyond ``limit``."""
    # An active execution is never dropped: its result is still to come.
    past = [entry for entry in entries if entry.state is not ExecutionState.ACTIVE]
    dropped = past[: max(0, len(past) - limit)]
    return tuple(entry for entry in entries if entry not in dropped)
