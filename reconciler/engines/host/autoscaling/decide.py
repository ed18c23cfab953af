"""Computes the number of replicas: pure functions of the workload, the latest reading and the time.

The platform defines when to decide and over what period to average (docs/platform/workload.md#scaling-decisions).
Beyond that, standard workloads follow the horizontal autoscaler of Kubernetes: its tolerance of a tenth, and its
treatment of replicas without a value. Serverless workloads get as many replicas as keep the load of each within the
target. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import msgspec

from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.model.kinds.workload import RESOURCE_METRICS, metric_of

TOLERANCE = 0.1
"""The relative distance from the target within which a standard workload is not scaled."""

STEADY = 15.0
"""Seconds between two decisions for a standard workload."""

SETTLING = 300.0
"""The period in seconds whose highest recommendation limits the scaling down of a standard workload."""

BRISK = 2.0
"""Seconds between two decisions for a serverless workload."""

PANIC = 60.0
"""Seconds for which a steep rise suspends scaling down."""

STEEP = 3
"""A rise to more than this multiple of replicas is one by more than 200 %
(docs/platform/workload.md#scaling-decisions)."""

COLLECTED = {"cpu": 15.0, "memory": 15.0, "rps": 20.0, "latency": 20.0, "concurrency": 20.0}
"""Seconds between two values of a metric."""
OUTDATED = {metric: 2 * seconds for metric, seconds in COLLECTED.items()}
"""Seconds after which a reading is ignored."""

LATENCY = "latency"
REQUESTS = ("rps", "concurrency")
"""Metrics by which serverless workloads scale every two seconds, and down to zero; with cpu they scale as others do."""


class MetricReading(msgspec.Struct, frozen=True, gc=False):
    """The value of the metric that a workload is scaled by.

    It is the average over the ``replicas`` that are available and have a value, in the unit of the target: percent of
    the cpu or memory field, requests a second, concurrent requests, or milliseconds. Without an available replica it
    describes the requests that wait for one, or arrive. ``at`` is when it was computed. ``idle`` is the number of
    seconds without a new or running request. A ``partial`` value covers less than its period, or no replica: it may be
    too low, so it scales nothing down.
    """

    value: float
    replicas: int
    at: float
    idle: float = 0.0
    partial: bool = False


class ScaleState(msgspec.Struct, frozen=True, gc=False):
    """The scaling decisions for a workload so far.

    ``past`` contains the recommendations of the last five minutes with their times. A serverless workload is not scaled
    down until ``panic``. ``decided`` is the time of the last decision.
    """

    replicas: int
    past: tuple[tuple[float, int], ...] = ()
    panic: float = 0.0
    decided: float | None = None


class _Decided(NamedTuple):
    """As in ScaleState; the bounds are not applied yet."""

    replicas: int
    past: tuple[tuple[float, int], ...]
    panic: float


def initial_state(spec: WorkloadSpec, present: int, now: float) -> ScaleState:
    """The state before the first decision: the existing replicas, within the bounds and at least one.

    That number counts as a recommendation, so nothing is scaled down for five minutes.
    """
    replicas = _limit_replicas(spec, max(present, 1))
    return ScaleState(replicas, ((now, replicas),))


def get_interval(spec: WorkloadSpec) -> float:
    """Seconds between two decisions: 15, or 2 for a serverless workload that is scaled by requests."""
    return BRISK if _scales_by_requests(spec) else STEADY


def averaging_period(state: ScaleState, spec: WorkloadSpec, now: float) -> float:
    """The period in seconds to average the next reading over: use 15, requests 60, or 6 after a steep rise."""
    if metric_of(spec.type, spec.options) in RESOURCE_METRICS:
        return 15.0
    return 6.0 if _scales_by_requests(spec) and now < state.panic else 60.0


def next_scale(
    state: ScaleState, spec: WorkloadSpec, reading: MetricReading | None, now: float
) -> tuple[ScaleState, int]:
    """The new state and number of replicas; may be called at any time (docs/platform/workload.md#scaling-decisions).

    The bounds apply at once; a reading is evaluated once per interval. Without a reading, or with an outdated one,
    the number stays. A suspended workload has no replicas, and its state starts again afterwards.
    """
    if spec.suspended or spec.type is Type.CRON:
        return ScaleState(0), 0
    metric, scale = metric_of(spec.type, spec.options), spec.options.autoscaling
    brisk = spec.type is Type.SERVERLESS and metric in REQUESTS
    least = scale.min_scale or (0 if brisk else 1)
    if metric == "disabled":
        replicas = max(least, min(0, scale.max_scale))
        return ScaleState(replicas), replicas
    if state.replicas == 0 and state.decided is None:
        state = initial_state(spec, 0, now)
    if not least <= state.replicas <= scale.max_scale:
        state = msgspec.structs.replace(state, replicas=max(least, min(state.replicas, scale.max_scale)))
    metric_reading = reading if reading is not None and now - reading.at <= OUTDATED[metric] else None
    # The first request to a workload without replicas waits for one: it does not wait for a decision too.
    waits = state.replicas == 0 and metric_reading is not None and metric_reading.value > 0 and metric_reading.idle == 0
    if state.decided is None or now >= state.decided + (BRISK if brisk else STEADY) or waits:
        decide = _brisk_decision if brisk else _steady_decision
        replicas, past, panic = decide(state, spec, metric_reading, now)
        state = ScaleState(max(least, min(replicas, scale.max_scale)), past, panic, now)
    return state, state.replicas


def is_fresh(spec: WorkloadSpec, reading: MetricReading, now: float) -> bool:
    """Whether ``reading`` still counts."""
    return now - reading.at <= OUTDATED[metric_of(spec.type, spec.options)]


def needs_metric(spec: WorkloadSpec, available: int) -> bool:
    """Whether a value of its metric could change the number of replicas of ``spec``, of which some are available.

    Without an available replica only serverless workloads have a value: the requests that wait.
    """
    scale = spec.options.autoscaling
    fixed = spec.suspended or spec.type is Type.CRON or metric_of(spec.type, spec.options) == "disabled"
    return not fixed and _get_min_replicas(spec) < scale.max_scale and (available > 0 or _scales_by_requests(spec))


def scales_by_requests(spec: WorkloadSpec) -> bool:
    """Whether the number of replicas of ``spec`` depends on its requests."""
    metric = metric_of(spec.type, spec.options)
    return metric in (*REQUESTS, LATENCY) and needs_metric(spec, 1)


def recommend_replicas(value: float, target: float, current: int, tolerance: float = 0.0) -> int:
    """The number of replicas that brings ``value``, an average over ``current``, to ``target``; ``current`` if it is
    near."""
    return current if _is_near(value, target, tolerance) else _round_up(current * value / target)


def recommend_weighted(reading: MetricReading, target: float, current: int) -> int:
    """The recommendation for ``current`` wanted replicas (1 or more), of which some may have no value.

    Replicas without a value (starting or not ready) count as idle if the others ask for more replicas, and as exactly
    at the target if they ask for fewer. If that assumption reverses the recommendation, the number stays.
    """
    if _is_near(reading.value, target, TOLERANCE):
        return current
    everyone = max(reading.replicas, current)
    more = reading.value > target
    assumed = 0.0 if more else target * (everyone - reading.replicas)
    average = (reading.value * reading.replicas + assumed) / everyone
    advice = recommend_replicas(average, target, everyone, TOLERANCE)
    return max(advice, current) if more else min(advice, current)


def _steady_decision(state: ScaleState, spec: WorkloadSpec, reading: MetricReading | None, now: float) -> _Decided:
    """Scale up at once, and down to the highest recommendation of the last five minutes."""
    current = state.replicas
    advice = recommend_weighted(reading, spec.options.autoscaling.target, current) if reading else current
    advice = max(advice, current) if reading is not None and reading.partial else advice
    past = (*(pair for pair in state.past if pair[0] > now - SETTLING), (now, advice))
    replicas = advice if advice > current else min(current, max(count for _, count in past))
    return _Decided(replicas, past, state.panic)


def _brisk_decision(state: ScaleState, spec: WorkloadSpec, reading: MetricReading | None, now: float) -> _Decided:
    """Follow the load; no scaling down for a minute after a steep rise; scale to zero after a long enough idle time."""
    if reading is None:
        return _Decided(state.replicas, state.past, state.panic)
    options = spec.options.autoscaling
    advice = recommend_replicas(reading.value, options.target, max(reading.replicas, 1))
    advice = max(advice, state.replicas) if reading.partial else advice
    steep = advice > STEEP * max(state.replicas, 1)
    panic = now + PANIC if steep else state.panic
    replicas = max(advice, state.replicas) if now < panic else advice
    if state.replicas and reading.idle < options.scale_to_zero_delay:
        replicas = max(replicas, 1)
    elif state.replicas and options.min_scale == 0 and now >= panic:
        replicas = 0
    return _Decided(replicas, state.past, panic)


def _scales_by_requests(spec: WorkloadSpec) -> bool:
    return spec.type is Type.SERVERLESS and metric_of(spec.type, spec.options) in REQUESTS


def _get_min_replicas(spec: WorkloadSpec) -> int:
    """The least number of replicas: 0 only for serverless workloads (docs/platform/workload.md#scaling-strategies)."""
    least = spec.options.autoscaling.min_scale
    return least if least or _scales_by_requests(spec) else 1


def _limit_replicas(spec: WorkloadSpec, replicas: int) -> int:
    least = _get_min_replicas(spec)
    return max(least, min(replicas, spec.options.autoscaling.max_scale))


def _is_near(value: float, target: float, tolerance: float) -> bool:
    return abs(value - target) <= tolerance * target * (1 + 1e-9)


def _round_up(number: float) -> int:
    """Round up, but ignore rounding errors of floating point."""
    return ceil(number - 1e-9 * max(number, 1.0))
