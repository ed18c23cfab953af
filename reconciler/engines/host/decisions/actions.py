"""The actions on the replicas of a workload: values that the controller carries out in order."""

from __future__ import annotations

import msgspec

from reconciler.reasons import Reason


class Create(msgspec.Struct, frozen=True):
    """Create a replica of the wanted version; ``index`` as in Replica. Its containers wait for their start.

    ``execution`` is the name of the execution that it is for, in a cron workload.
    """

    index: int = -1
    execution: str = ""


class Resize(msgspec.Struct, frozen=True):
    """Give a running replica of an older version the limits of the wanted one, and with them its version."""

    replica: str


class StopReplica(msgspec.Struct, frozen=True):
    """Remove a replica from the endpoints and begin its termination; ``reason`` as in Replica."""

    replica: str
    reason: Reason


class Start(msgspec.Struct, frozen=True):
    """Start a waiting container."""

    replica: str
    container: str


class RunPreStop(msgspec.Struct, frozen=True):
    """Run the user's preStop hook, which SIGTERM follows; without one, find out whether the default one can run."""

    replica: str
    container: str


class Terminate(msgspec.Struct, frozen=True):
    """Send SIGTERM."""

    replica: str
    container: str


class Kill(msgspec.Struct, frozen=True):
    """Send SIGKILL to all processes of the container."""

    replica: str
    container: str


class ScheduleRestart(msgspec.Struct, frozen=True):
    """Schedule the next start of an ended container at ``start_at`` (monotonic); ``failures`` counts ends in a row."""

    replica: str
    container: str
    start_at: float
    failures: int


class Remove(msgspec.Struct, frozen=True):
    """Forget an ended replica, and remove everything that was made for it."""

    replica: str


Action = Create | Resize | StopReplica | Start | RunPreStop | Terminate | Kill | ScheduleRestart | Remove


class Decision(msgspec.Struct, frozen=True):
    """The actions to perform now, and when time alone requires a new decision (monotonic seconds; None: never).

    Ends and starts come before creations: existing replicas are repaired before new ones are added.
    """

    actions: tuple[Action, ...] = ()
    wake: float | None = None


def find_soonest_time(*times: float | None) -> float | None:
    """The earliest of ``times`` that is not None."""
    return min((time for time in times if time is not None), default=None)
