"""What fails of what happens to volumes by itself: when it is tried again, and the conditions that say so."""

from __future__ import annotations

from collections.abc import Container, Iterator
from enum import StrEnum
from typing import Protocol

import msgspec

from reconciler.clock import Clock
from reconciler.engines.protocol import Observation
from reconciler.engines.volumes import VolumeId
from reconciler.engines.workload.status import DeploymentCondition, with_condition
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import ConditionType, Reason

FIRST_WAIT = 60.0
"""Seconds after the first failure until the next attempt; each further one doubles them."""
LAST_WAIT = 3600.0
"""Seconds between two attempts at most."""
GROWTH_WAIT = 240.0
"""The same for growth: a volume that is full is worse than an attempt too many."""


class Act(StrEnum):
    """What happens to a volume by itself."""

    STATE = "state"
    LOCK = "lock"
    HOOK = "hook"
    EXPIRY = "expiry"
    MEASUREMENT = "measurement"
    GROWTH = "growth"
    SNAPSHOT = "snapshot"
    TRIM = "trim"
    PROOF = "proof"
    RESTORE = "restore"


class ActFailure(msgspec.Struct, frozen=True):
    """The last failure of an act, at the time ``at``; ``subject`` is what it was about, such as a name.

    ``count`` is how often it failed in a row, ``due`` the moment of the monotonic clock of the next attempt.
    """

    error: EngineError
    subject: str
    at: float
    count: int
    due: float


class VolumeSignals(Protocol):
    """Leads to the daemon what happens to volumes."""

    def report(self, key: Key, reason: Reason, message: str) -> None:
        """Report an event that no step caused."""

    def report_change(self, key: Key | None = None) -> None:
        """Report that an observation of ``key``, or (None) of anything here, may differ from the last one."""


class VolumeFailures:
    """The failures of the volumes of a location, which are conditions of its volume sets."""

    def __init__(self, clock: Clock, signals: VolumeSignals) -> None:
        self._clock = clock
        self._signals = signals
        self._found: dict[tuple[VolumeId, Act], ActFailure] = {}

    def find(self, volume: VolumeId, act: Act) -> ActFailure | None:
        """The failure of an act; None if it did not fail, or succeeded since."""
        return self._found.get((volume, act))

    def is_due(self, volume: VolumeId, act: Act, subject: str = "") -> bool:
        """Whether an act may be tried now; one about another ``subject`` than the failed one may."""
        failure = self.find(volume, act)
        return failure is None or failure.subject != subject or self._clock.monotonic() >= failure.due

    def add(self, volume: VolumeId, act: Act, error: EngineError, subject: str = "") -> None:
        """Add a failure, which is an event once for as long as it lasts."""
        former = self.find(volume, act)
        count = former.count + 1 if former is not None else 1
        most = GROWTH_WAIT if act is Act.GROWTH else LAST_WAIT
        wait = 0.0 if act is Act.STATE else min(FIRST_WAIT * 2.0 ** min(count - 1, 10), most)
        failure = ActFailure(error, subject, self._clock.now(), count, self._clock.monotonic() + wait)
        self._found[volume, act] = failure
        if former is None or _format_stable_text(former.error) != _format_stable_text(error):
            self._signals.report(volume.volumeset, _get_event_reason(act, error), _format_failure_message(failure, act))
        if former is None or str(former.error) != str(error):
            self._signals.report_change(volume.volumeset)

    def clear(self, volume: VolumeId, act: Act) -> None:
        """Forget the failure of an act, which succeeded or is no longer wanted."""
        if self._found.pop((volume, act), None) is not None:
            self._signals.report_change(volume.volumeset)

    def retain(self, volumesets: Container[Key]) -> None:
        """Forget the failures of volume sets that do not exist any more."""
        self._found = {
            operation: failure for operation, failure in self._found.items() if operation[0].volumeset in volumesets
        }

    def with_conditions(self, seen: Observation) -> Observation:
        """``seen``, a volume set, with a condition for what fails."""
        for condition in self._conditions(seen.key):
            seen = msgspec.structs.replace(seen, state=with_condition(seen.state, condition))
        return seen

    def _conditions(self, key: Key) -> Iterator[DeploymentCondition]:
        failures = [(act, failure) for (volume, act), failure in sorted(self._found.items()) if volume.volumeset == key]
        low = [failure for _, failure in failures if failure.error.reason == Reason.HOST_DISK_LOW]
        snapshots = [failure for act, failure in failures if act is Act.SNAPSHOT]
        proofs = [failure for act, failure in failures if act is Act.PROOF and failure not in low]
        others = [
            (act, failure) for act, failure in failures if act not in (Act.SNAPSHOT, Act.PROOF) and failure not in low
        ]
        if low:
            yield _make_condition(ConditionType.HOST_DISK_LOW, Reason.HOST_DISK_LOW, str(low[0].error))
        if snapshots:
            message = _format_failure_message(snapshots[0], Act.SNAPSHOT)
            yield _make_condition(ConditionType.SNAPSHOT_FAILING, Reason.SNAPSHOT_FAILED, message)
        if proofs:
            kind = ConditionType.SNAPSHOT_VERIFICATION_FAILING
            yield _make_condition(
                kind, Reason.SNAPSHOT_VERIFICATION_FAILED, _format_failure_message(proofs[0], Act.PROOF)
            )
        if others:
            act, first = others[0]
            yield _make_condition(
                ConditionType.VOLUME_CHECK_FAILING, Reason.VOLUME_CHECK_FAILED, _format_failure_message(first, act)
            )


def _make_condition(kind: ConditionType, reason: Reason, message: str) -> DeploymentCondition:
    return DeploymentCondition(kind, "True", reason, message)


def _get_event_reason(act: Act, error: EngineError) -> Reason:
    """The reason of the event of a failure."""
    if error.reason == Reason.HOST_DISK_LOW:
        return Reason.HOST_DISK_LOW
    own = {Act.SNAPSHOT: Reason.SNAPSHOT_FAILED, Act.PROOF: Reason.SNAPSHOT_VERIFICATION_FAILED}
    return own.get(act, Reason.VOLUME_CHECK_FAILED)


def _format_failure_message(failure: ActFailure, act: Act) -> str:
    what = f"{failure.subject} was not taken: " if act is Act.SNAPSHOT and failure.subject else ""
    low = failure.error.reason == Reason.HOST_DISK_LOW
    return f"{what}{failure.error}" if low else f"{what}{failure.error.reason}: {failure.error}"


def _format_stable_text(error: EngineError) -> str:
    """What makes a failure another one: how much is free changes all the time."""
    return str(error.reason) if error.reason == Reason.HOST_DISK_LOW else str(error)
