"""The schedule of a probe and the evaluation of its results: pure, with times in seconds of the monotonic clock."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.model.kinds.workload import Probe

EAGER = 0.1
"""The shortest wait between two probes of a container that has just started."""

PATIENT = 1.0
"""The longest such wait."""


TICKS = 10
"""Regular probes run at tenths of a second. Half of the CPU of a lonely probe is the wake-up of an idle core, and
probes that run at the same time share it."""


class ProbeKind(StrEnum):
    """What a probe decides about (docs/platform/workload.md#probes)."""

    READINESS = "readiness"
    LIVENESS = "liveness"


class Verdict(msgspec.Struct, frozen=True):
    """The verdict of a probe on the container that started at ``started``; ``message`` is the problem."""

    place: ContainerId
    started: float
    kind: ProbeKind
    ok: bool
    message: str = ""


class ProbeState(msgspec.Struct, frozen=True):
    """The results of a probe so far.

    ``verdict`` is None before the first one: the container is then neither ready nor failing. ``successes`` and
    ``failures`` count results in a row. ``first`` and ``asked`` are the times of the first and the last probe;
    ``counted`` is the time of the last one whose failure counts (see ``apply_result``).
    """

    verdict: bool | None = None
    successes: int = 0
    failures: int = 0
    first: float = 0.0
    asked: float | None = None
    counted: float = 0.0


def make_initial_state(kind: ProbeKind, good: bool) -> ProbeState:
    """The state before the first result: a container is alive until it fails; a ready one (``good``) stays ready."""
    return ProbeState(verdict=True if good or kind is ProbeKind.LIVENESS else None)


def apply_result(probe: Probe, state: ProbeState, ok: bool | None, now: float) -> ProbeState:
    """``state`` after the result of the probe at ``now`` (docs/platform/workload.md#rollout).

    ``successThreshold`` successes in a row make the verdict good, ``failureThreshold`` failures make it bad. A failure
    between two regular probes (see ``next_due``) does not count: it only means that the container is not ready yet. If
    ``ok`` is None, this host could not probe. That changes no existing verdict, and without one it counts as a failure.
    """
    first = now if state.asked is None else state.first
    if ok:
        successes = state.successes + 1
        verdict = True if successes >= probe.success_threshold else state.verdict
        return ProbeState(verdict, successes, 0, first, now, now)
    if _is_starting(state) and state.asked is not None and now < state.counted + probe.period_seconds:
        return msgspec.structs.replace(state, asked=now)
    if ok is None and state.verdict is not None:
        return msgspec.structs.replace(state, first=first, asked=now, counted=now)
    failures = state.failures + 1
    verdict = False if failures >= probe.failure_threshold else state.verdict
    return ProbeState(verdict, 0, failures, first, now, now)


def next_due(probe: Probe, state: ProbeState, started: float, now: float, spread: float = 0.0) -> float:
    """The time of the next probe of a container that started at ``started``; in the past if it is overdue.

    The first probe follows after the initial delay, then one per period. As in Kubernetes, a container without a
    success since its start is probed earlier as well: soon at first, then less and less often, down to once a second,
    so that readiness is not a period late. If a container started long before its probe (the daemon restarted), it is
    probed within a period, at the fraction ``spread`` of it (0 to 1), so that the probes do not coincide.
    """
    if state.asked is None:
        due = started + probe.initial_delay_seconds
        return now + spread * probe.period_seconds if now - due > probe.period_seconds else due
    regular = state.counted + probe.period_seconds
    if not _is_starting(state):
        # The nearest tick, not the next one: each probe runs a little late, and would lose a tick in every period.
        return round(regular * TICKS) / TICKS
    return min(regular, state.asked + min(max(state.asked - state.first, EAGER), PATIENT))


def _is_starting(state: ProbeState) -> bool:
    return state.verdict is None and state.successes == 0
