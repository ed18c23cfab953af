"""When a probe asks next, and what its answers amount to: pure, with times in seconds of the monotonic clock."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.model.kinds.workload import Probe

EAGER = 0.1
"""The least wait between two looks at a container that has just started."""

PATIENT = 1.0
"""The longest such wait."""


class ProbeKind(StrEnum):
    """What a probe decides about (docs/platform/workload.md#probes)."""

    READINESS = "readiness"
    LIVENESS = "liveness"


class Verdict(msgspec.Struct, frozen=True):
    """What a probe has found out about the container of the start at ``started``; ``message`` is what is wrong."""

    place: ContainerId
    started: float
    kind: ProbeKind
    ok: bool
    message: str = ""


class ProbeState(msgspec.Struct, frozen=True):
    """What a probe has been answered so far.

    ``verdict`` is None while there is none: a container is then not ready and not failing either. ``successes`` and
    ``failures`` are those in a row since the other one. ``first`` and ``asked`` are when it asked first and last,
    ``counted`` when it last asked with a failure to count (see ``after``).
    """

    verdict: bool | None = None
    successes: int = 0
    failures: int = 0
    first: float = 0.0
    asked: float | None = None
    counted: float = 0.0


def initial(kind: ProbeKind, good: bool) -> ProbeState:
    """Before the first answer. A container lives until it fails; one that was ready (``good``) stays so until then."""
    return ProbeState(verdict=True if good or kind is ProbeKind.LIVENESS else None)


def after(probe: Probe, state: ProbeState, ok: bool | None, now: float) -> ProbeState:
    """``state`` after the question put at ``now`` was answered (docs/platform/workload.md#rollout).

    ``successThreshold`` successes in a row make the verdict good, ``failureThreshold`` failures make it bad. A failure
    between two regular looks (see ``next_due``) is none: it only says that the container is not ready yet. None for
    ``ok`` says that this host could not ask; that changes no verdict that there is, and else counts as a failure.
    """
    first = now if state.asked is None else state.first
    if ok:
        successes = state.successes + 1
        verdict = True if successes >= probe.success_threshold else state.verdict
        return ProbeState(verdict, successes, 0, first, now, now)
    if _starting(state) and state.asked is not None and now < state.counted + probe.period_seconds:
        return msgspec.structs.replace(state, asked=now)
    if ok is None and state.verdict is not None:
        return msgspec.structs.replace(state, first=first, asked=now, counted=now)
    failures = state.failures + 1
    verdict = False if failures >= probe.failure_threshold else state.verdict
    return ProbeState(verdict, 0, failures, first, now, now)


def next_due(probe: Probe, state: ProbeState, started: float, now: float, spread: float = 0.0) -> float:
    """When to ask next, for a container that started at ``started``; in the past where it should have been already.

    First after the initial delay, then every period. In between, a container that has not succeeded since its start is
    looked at soon after it and then ever more seldom, down to once a second, so that readiness is not a period late;
    Kubernetes does so too. A container that was there long before its probe (the daemon has restarted) is asked within
    a period, at the part ``spread`` of it (0 to 1), so that not all are asked at once.
    """
    if state.asked is None:
        due = started + probe.initial_delay_seconds
        return now + spread * probe.period_seconds if now - due > probe.period_seconds else due
    regular = state.counted + probe.period_seconds
    if not _starting(state):
        return regular
    return min(regular, state.asked + min(max(state.asked - state.first, EAGER), PATIENT))


def _starting(state: ProbeState) -> bool:
    return state.verdict is None and state.successes == 0
