"""What can be decided about the replicas of a workload: values that the controller carries out, in their order."""

from __future__ import annotations

import msgspec


class Create(msgspec.Struct, frozen=True):
    """Make a replica of the wanted version; ``index`` as in Replica. Its containers wait for their start."""

    index: int = -1


class StopReplica(msgspec.Struct, frozen=True):
    """Take a replica out of the endpoints and begin its termination; ``reason`` as in Replica."""

    replica: str
    reason: str


class Start(msgspec.Struct, frozen=True):
    """Start a waiting container."""

    replica: str
    container: str


class RunPreStop(msgspec.Struct, frozen=True):
    """Run the user's preStop hook; the container is told to end when it is over."""

    replica: str
    container: str


class Terminate(msgspec.Struct, frozen=True):
    """Send SIGTERM."""

    replica: str
    container: str


class Kill(msgspec.Struct, frozen=True):
    """Send SIGKILL to all that runs in the container."""

    replica: str
    container: str


class ScheduleRestart(msgspec.Struct, frozen=True):
    """Let an ended container wait for its next start at ``start_at`` (monotonic); ``failures`` ends in a row."""

    replica: str
    container: str
    start_at: float
    failures: int


class Remove(msgspec.Struct, frozen=True):
    """Forget a replica that is over, and everything that was made for it."""

    replica: str


Action = Create | StopReplica | Start | RunPreStop | Terminate | Kill | ScheduleRestart | Remove


class Decision(msgspec.Struct, frozen=True):
    """What is to be done now, and when time alone changes the answer (monotonic seconds; None: never).

    Ends and starts come before creations: what is there is healed before there is more of it.
    """

    actions: tuple[Action, ...] = ()
    wake: float | None = None


def soonest(*times: float | None) -> float | None:
    """The first of ``times`` that is one."""
    return min((each for each in times if each is not None), default=None)
