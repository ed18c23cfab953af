"""What every engine is: observe, perform, command; and the Outcome of a step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from reconciler.model.key import Key
from reconciler.model.kinds.secret import SecretValue
from reconciler.model.record import Health
from reconciler.planning.plan import Step, StepId

SecretReader = Callable[[Key], SecretValue]
"""The data of a secret as it was applied last, for any engine: no Git, no network, in any thread.

It raises EngineError, reason SecretUnavailable, whose message never shows what is in the secret.
"""


class Result(StrEnum):
    """How a step ended: waiting means that nothing is wrong and something else has to happen first."""

    APPLIED = "applied"
    FAILED = "failed"
    SKIPPED = "skipped"
    WAITING = "waiting"


class Observation(msgspec.Struct, frozen=True, gc=False):
    """What an engine sees of one resource at its location.

    ``state`` is JSON in the shapes of docs/platform/workload.md#deployments and docs/platform/volumeset.md#status.

    ``digest`` and ``version`` are those of the step that made it, as far as it is still so. Where they are not, and the
    engine can tell how it is, ``body`` says it as JSON in normal form.
    """

    key: Key
    location: str
    health: Health
    state: bytes = b"{}"
    digest: str = ""
    version: int = 0
    alias: str = ""
    body: bytes = b""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The end of one step. ``seen`` is the resource (None after a delete), ``also`` what else changed with it.

    Of a step that waits, ``seen`` is what has changed already, such as the health of what is ending.
    """

    id: StepId
    result: Result
    reason: str = ""
    message: str = ""
    retry: bool = True
    seen: Observation | None = None
    also: tuple[Observation, ...] = ()


class Engine(Protocol):
    """One location's way of making things so. ``perform`` must be safe to repeat; it raises EngineError to fail.

    ``parallel`` steps are performed at once. An engine that is ``immediate`` never waits in ``perform``: its steps need
    no task of their own and do not count against the limit on work in flight. Where it ``can_drift``, what is there can
    change without a step; one whose world is the record need not be observed for that.
    """

    name: str
    parallel: int
    immediate: bool
    can_drift: bool

    async def observe(self) -> list[Observation]:
        """What exists at the location; changes nothing."""

    async def perform(self, step: Step) -> Outcome:
        """Carry ``step`` out, however often it is asked to; raises EngineError."""

    async def command(self, key: Key, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        """An imperative command, such as docs/platform/volumeset.md#commands; raises EngineError."""


class EngineEvent(msgspec.Struct, frozen=True):
    """Something that happened at a location and no step asked for; it becomes an event of the resource."""

    key: Key
    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


@runtime_checkable
class SupportsLifecycle(Protocol):
    """An engine that works on between steps, from ``open`` to ``close``; what it runs goes on without it.

    All of these are called while nobody else reads the records.
    """

    async def open(self) -> None:
        """Begin to work, on from what is recorded and what there is; nothing happens where it has begun already."""

    async def close(self) -> None:
        """End working; harmless twice."""

    def refresh(self) -> None:
        """Look again at what is recorded without a place: GVCs, locations and secrets may have changed."""

    def news(self) -> list[EngineEvent]:
        """What happened since this was asked last, oldest first."""


class ReplicaCounts(msgspec.Struct, frozen=True):
    """Replicas that run and that are wanted, of the newest versions; ``busy`` while more is about to be done."""

    running: int = 0
    wanted: int = 0
    busy: bool = False


@runtime_checkable
class SupportsReplicas(Protocol):
    """An engine that goes on with its replicas after a step was performed."""

    def replica_counts(self) -> ReplicaCounts:
        """How far it is; all zero where it has not begun to work."""


@runtime_checkable
class SupportsWatch(Protocol):
    """An engine that notices by itself when its location changes, so that drift need not wait for the next look."""

    def changes(self) -> AsyncIterator[None]:
        """Yields whenever something at the location may have changed, by a step or without one."""
