"""How many replicas there shall be: pure functions of what is wanted, the latest reading and the time.

The platform fixes when to decide and over what to average (docs/platform/workload.md#scaling-decisions). Where it
leaves room, standard workloads follow the horizontal autoscaler of Kubernetes (its tolerance of a tenth, its reading of
replicas without a value), and serverless ones need just as many replicas as share what comes in without being over the
target. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

from math import ceil

import msgspec

from reconciler.engines.host.spec import Type, WorkloadSpec
from reconciler.model.kinds.workload import metric_of

TOLERANCE = 0.1
"""A standard workload whose value is this near to the target, as a part of it, stays as it is."""

STEADY = 15.0
"""Seconds from one decision to the next, of a standard workload."""

SETTLING = 300.0
"""Seconds whose highest recommendation a standard workload scales down to."""

BRISK = 2.0
"""Seconds from one decision to the next, of a serverless workload."""

PANIC = 60.0
"""Seconds for which a steep rise suspends scaling down."""

STEEP = 3
"""More than so many times the replicas is a rise by more than 200 % (docs/platform/workload.md#scaling-decisions)."""

COLLECTED = {"cpu": 15.0, "rps": 20.0, "latency": 20.0, "concurrency": 20.0}
"""Seconds from one value of a metric to the next; a reading of more than twice this age is none."""

REQUESTS = ("rps", "concurrency")
"""What serverless workloads are scaled by every two seconds, and down to zero; by cpu they scale as the others do."""


class MetricReading(msgspec.Struct, frozen=True):
    """The value of the metric that a workload is scaled by.

    It is the average over the ``replicas`` that were available and have one, in the unit of the target: percent of the
    cpu field, requests a second or at a time, milliseconds. With none available it is that of the requests that wait
    for one. ``at`` is when it was computed. ``idle`` is for how many seconds there has been no request,
    neither a new one nor one under way.
    """

    value: float
    replicas: int
    at: float
    idle: float = 0.0


class ScaleState(msgspec.Struct, frozen=True):
    """What has been decided about a workload so far.

    ``past`` holds the recommendations of the last five minutes, each with its time. Until ``panic`` a serverless
    workload is not scaled down. ``decided`` is when a reading was weighed last.
    """

    replicas: int
    past: tuple[tuple[float, int], ...] = ()
    panic: float = 0.0
    decided: float | None = None


def begun(wanted: WorkloadSpec, present: int, now: float) -> ScaleState:
    """Before the first decision: as many replicas as there are, within the bounds; at least one, so that it can serve.

    What there is counts as a recommendation: nothing is scaled down for five minutes.
    """
    replicas = _bounded(wanted, max(present, 1))
    return ScaleState(replicas, ((now, replicas),))


def interval(wanted: WorkloadSpec) -> float:
    """Seconds from one decision to the next: every 15, or 2 for a serverless workload scaled by requests."""
    return BRISK if _brisk(wanted) else STEADY


def averaged_over(state: ScaleState, wanted: WorkloadSpec, now: float) -> float:
    """Over how many of the last seconds the next reading shall be averaged: cpu 15, requests 60, or 6 after a rise."""
    if metric_of(wanted.type, wanted.options) == "cpu":
        return 15.0
    return 6.0 if _brisk(wanted) and now < state.panic else 60.0


def next_scale(
    state: ScaleState, wanted: WorkloadSpec, reading: MetricReading | None, now: float
) -> tuple[ScaleState, int]:
    """``state`` and the number of replicas, at any time (docs/platform/workload.md#scaling-decisions).

    The bounds are obeyed at once; a reading is weighed once in ``interval``. None, and one that is too old, says that
    all stay as they are. A suspended workload has no replicas, and begins anew afterwards.
    """
    if wanted.suspended or wanted.type is Type.CRON:
        return ScaleState(0), 0
    if metric_of(wanted.type, wanted.options) == "disabled":
        replicas = _bounded(wanted, 0)
        return ScaleState(replicas), replicas
    if state.replicas == 0 and state.decided is None:
        state = begun(wanted, 0, now)
    state = msgspec.structs.replace(state, replicas=_bounded(wanted, state.replicas))
    if state.decided is None or now >= state.decided + interval(wanted):
        known = reading if reading and _fresh(wanted, reading, now) else None
        decide = _brisk_decision if _brisk(wanted) else _steady_decision
        state = decide(state, wanted, known, now)
        state = msgspec.structs.replace(state, replicas=_bounded(wanted, state.replicas), decided=now)
    return state, state.replicas


def recommend(value: float, target: float, current: int, tolerance: float = 0.0) -> int:
    """How many replicas bring ``value``, an average over ``current``, to ``target``; ``current`` where it is near."""
    return current if _near(value, target, tolerance) else _up(current * value / target)


def weighted(reading: MetricReading, target: float, current: int) -> int:
    """What ``reading`` recommends where ``current`` replicas, 1 or more, are wanted; not all of them need have a value.

    Replicas without one (they start, or are not ready) count as idle where the others ask for more, and as just at the
    target where the others ask for fewer; where that turns the answer round, it is to stay.
    """
    if _near(reading.value, target, TOLERANCE):
        return current
    everyone = max(reading.replicas, current)
    more = reading.value > target
    assumed = 0.0 if more else target * (everyone - reading.replicas)
    average = (reading.value * reading.replicas + assumed) / everyone
    advice = recommend(average, target, everyone, TOLERANCE)
    return max(advice, current) if more else min(advice, current)


def _steady_decision(state: ScaleState, wanted: WorkloadSpec, reading: MetricReading | None, now: float) -> ScaleState:
    """Up at once, down to the highest recommendation of the last five minutes."""
    current = state.replicas
    advice = weighted(reading, wanted.options.autoscaling.target, current) if reading else current
    past = (*(each for each in state.past if each[0] > now - SETTLING), (now, advice))
    replicas = advice if advice > current else min(current, max(count for _, count in past))
    return msgspec.structs.replace(state, replicas=replicas, past=past)


def _brisk_decision(state: ScaleState, wanted: WorkloadSpec, reading: MetricReading | None, now: float) -> ScaleState:
    """As many as are needed; after a steep rise none fewer for a minute; none at all after long enough a silence."""
    if reading is None:
        return state
    options = wanted.options.autoscaling
    advice = recommend(reading.value, options.target, max(reading.replicas, 1))
    steep = advice > STEEP * max(state.replicas, 1)
    panic = now + PANIC if steep else state.panic
    replicas = max(advice, state.replicas) if now < panic else advice
    if state.replicas and reading.idle < options.scale_to_zero_delay:
        replicas = max(replicas, 1)
    elif state.replicas and options.min_scale == 0 and now >= panic:
        replicas = 0
    return msgspec.structs.replace(state, replicas=replicas, panic=panic)


def _brisk(wanted: WorkloadSpec) -> bool:
    return wanted.type is Type.SERVERLESS and metric_of(wanted.type, wanted.options) in REQUESTS


def _fresh(wanted: WorkloadSpec, reading: MetricReading, now: float) -> bool:
    return now - reading.at <= 2 * COLLECTED[metric_of(wanted.type, wanted.options)]


def _least(wanted: WorkloadSpec) -> int:
    """Only a serverless workload can have no replica (docs/platform/workload.md#scaling-strategies)."""
    return wanted.options.autoscaling.min_scale if _brisk(wanted) else max(wanted.options.autoscaling.min_scale, 1)


def _bounded(wanted: WorkloadSpec, replicas: int) -> int:
    least = _least(wanted)
    return max(least, min(replicas, wanted.options.autoscaling.max_scale))


def _near(value: float, target: float, tolerance: float) -> bool:
    return abs(value - target) <= tolerance * target * (1 + 1e-9)


def _up(number: float) -> int:
    """The next whole number, but for what is only an error of rounding."""
    return ceil(number - 1e-9 * max(number, 1.0))
