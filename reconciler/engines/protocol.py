"""The protocol of every engine (observe, perform, command) and the outcome of a step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from reconciler.engines.domain_status import DomainReport
from reconciler.model.key import Key
from reconciler.model.kinds.secret import SecretValue
from reconciler.model.record import Health
from reconciler.planning.plan import Step, StepId
from reconciler.reasons import Reason

SecretReader = Callable[[Key], SecretValue]
"""The data of a secret as it was last applied, for any engine: no Git, no network, in any thread.

It raises EngineError, reason SecretUnavailable; the message never contains secret data.
"""


class Result(StrEnum):
    """How a step ended: ``waiting`` means that nothing is wrong, but something else must happen first."""

    APPLIED = "applied"
    FAILED = "failed"
    SKIPPED = "skipped"
    WAITING = "waiting"


class Observation(msgspec.Struct, frozen=True, gc=False):
    """The state of one resource at its location, as an engine observes it.

    ``state`` is JSON in the shapes of docs/platform/workload.md#deployments and docs/platform/volumeset.md#status.
    ``digest`` and ``version`` are those of the step that made the resource, as long as it is unchanged. If it has
    changed and the engine can read its state, ``body`` contains that as JSON in normal form.
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
    """The end of one step. ``seen`` is the resource (None after a delete); ``also`` are other changed resources.

    Digest, version and health of ``seen`` are enough: with an empty ``state``, the recorded one stays until an engine
    that watches its location is observed, which follows at once.
    For a waiting step, ``seen`` contains what has changed already, such as the health of an ending resource.
    """

    id: StepId
    result: Result
    reason: Reason = Reason.APPLIED
    message: str = ""
    retry: bool = True
    seen: Observation | None = None
    also: tuple[Observation, ...] = ()


class Engine(Protocol):
    """Applies desired state at one location. ``perform`` must be safe to repeat; it raises EngineError on failure.

    At most ``parallel`` steps run at once. An ``immediate`` engine never waits in ``perform``: its steps need no task
    of their own, and do not count against the limit of steps in flight. If it ``can_drift``, resources can change
    without a step; other engines need not be observed for drift.
    """

    name: str
    parallel: int
    immediate: bool
    can_drift: bool

    async def observe(self) -> list[Observation]:
        """The resources at the location; changes nothing."""

    async def perform(self, step: Step) -> Outcome:
        """Perform ``step``; may be repeated; raises EngineError."""

    async def command(self, key: Key, name: str, spec: dict[str, Any], command_id: str = "") -> dict[str, Any]:
        """Perform the command ``name`` (docs/platform/volumeset.md#commands); returns what it created or changed.

        After a crash, the same command is performed again with the same ``command_id``: what it created before is not
        created a second time. An ``immediate`` engine writes the records, in the transaction that ends the command; any
        other engine only reads them. Raises EngineError.
        """


class EngineEvent(msgspec.Struct, frozen=True):
    """An event at a location that no step caused; it becomes an event of the resource."""

    key: Key
    reason: Reason
    message: str


@runtime_checkable
class SupportsLifecycle(Protocol):
    """An engine that works between steps, from ``open`` to ``close``; what it runs continues without it.

    All methods are called while nothing else reads the records.
    """

    async def open(self) -> None:
        """Start to work, from the records and the existing state; does nothing if already open."""

    async def close(self) -> None:
        """Stop working; may be repeated."""

    def refresh(self) -> None:
        """Reload records without a location: GVCs, locations and secrets may have changed."""

    async def wait_refreshed(self) -> None:
        """Return when what runs is being changed by the last ``refresh``, or cannot be, or that takes too long."""

    def news(self) -> list[EngineEvent]:
        """The events since the last call, oldest first."""


@runtime_checkable
class SupportsExecutions(Protocol):
    """An ``immediate`` engine that records executions of cron workloads at their scheduled times.

    Both methods are called while nothing else reads the records.
    """

    def next_due(self) -> float | None:
        """When an execution is due next, in seconds since the epoch; None if none is."""

    def record_due(self) -> None:
        """Record the executions that are due now, and an event for missed times. Raises RecordsError."""


@runtime_checkable
class SupportsSchedules(Protocol):
    """An engine that does by itself what manifests schedule."""

    def begin_schedules(self) -> None:
        """Do from now on what is due, and what was missed: Git was read since the start, or could not be.

        Before that, a manifest that ends a schedule may wait in Git. Does nothing if called again.
        """


class ReplicaCounts(msgspec.Struct, frozen=True):
    """Running and wanted replicas of the newest versions; ``busy`` while more actions are due."""

    running: int = 0
    wanted: int = 0
    busy: bool = False


@runtime_checkable
class SupportsReplicas(Protocol):
    """An engine whose replicas still change after a step is performed."""

    def replica_counts(self) -> ReplicaCounts:
        """The current counts; all zero if the engine is not open."""


@runtime_checkable
class SupportsDomains(Protocol):
    """An engine that serves domains, which have no location of their own."""

    def domains(self) -> Mapping[Key, DomainReport] | None:
        """The domains that lead to a workload here, as of the last ``observe``; None if nothing is known yet."""


@runtime_checkable
class SupportsWatch(Protocol):
    """An engine that detects changes at its location by itself, so that drift is found before the next check."""

    def changes(self) -> AsyncIterator[frozenset[Key]]:
        """Yields the resources that may have changed, by a step or without one; empty: any of the location may have."""

    async def observe_some(self, keys: Collection[Key]) -> list[Observation]:
        """The resources that ``keys`` name, as ``observe`` has them; it may add others. Changes nothing.

        One of ``keys`` that is not in the answer does not exist. Raises EngineError.
        """
