"""Everything about scale at one location: its metrics, the decisions on replicas, and the recommended sizes."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.capacity import (
    Amount,
    UsageHistory,
    recommend_amount,
    record_usage,
)
from reconciler.engines.host.autoscaling.decide import (
    BRISK,
    STEADY,
    ScaleState,
    averaging_period,
    get_interval,
    initial_state,
    is_fresh,
    needs_metric,
    next_scale,
)
from reconciler.engines.host.autoscaling.limits import CapacityLimits, ResizingRuntime
from reconciler.engines.host.autoscaling.metrics import (
    MetricSource,
    MetricSources,
    StatsSource,
    UnknownMetrics,
    UsageMetric,
    Used,
    counted_replicas,
)
from reconciler.engines.host.autoscaling.request_metrics import SAMPLE, RequestMetrics, TrafficSource
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.workload.spec import WorkloadSpec, uses_capacity_ai
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.workload import metric_of
from reconciler.reasons import Reason

Histories = dict[str, UsageHistory]
"""The histories of one workload's containers, by container name."""


class Autoscaler:
    """Remembers the scaling decisions for each workload; a new daemon continues from the existing replicas."""

    def __init__(self, source: MetricSource, clock: Clock, signals: LocationSignals) -> None:
        self._source = source
        self._signals = signals
        self._clock = clock
        self._states: dict[Key, ScaleState] = {}
        self._scaled: dict[Key, tuple[ReplicaTemplate, WorkloadSpec]] = {}
        self._unknown = UnknownMetrics(signals)

    def spec_at_scale(self, template: ReplicaTemplate, replicas: Sequence[Replica]) -> WorkloadSpec:
        """``template``'s specification with the number of replicas that its metric requires; ``replicas`` exist now."""
        base, now = template.desired, self._clock.monotonic()
        before = self._states.get(base.key)
        if before is None:
            before = initial_state(base, sum(replica.ending is None for replica in replicas), now)
        metric = metric_of(base.type, base.options)
        counted = counted_replicas(metric, replicas, now)
        reading = self._source.read(base, counted, averaging_period(before, base, now))
        fresh = reading is not None and is_fresh(base, reading, now)
        needed = metric in self._source.metrics and needs_metric(base, len(counted))
        self._unknown.note(base.key, metric, is_known=fresh, now=now, needed=needed)
        state, count = next_scale(before, base, reading, now)
        self._states[base.key] = state
        if reading is not None and state.decided == now != before.decided and count != before.replicas:
            target = base.options.autoscaling.target
            text = f"from {before.replicas} to {count} replicas: {metric} is {reading.value:.4g}, its target {target:g}"
            self._signals.report(base.key, Reason.SCALED, text)
        return self._at_scale(template, count)

    def needs_change(self, template: ReplicaTemplate, replicas: Sequence[Replica]) -> bool:
        """Whether ``spec_at_scale`` is another specification now than it was at its last call."""
        last = self._scaled.get(template.desired.key)
        return last is None or self.spec_at_scale(template, replicas) is not last[1]

    def _at_scale(self, template: ReplicaTemplate, count: int) -> WorkloadSpec:
        """Most decisions change nothing, and their specification is the last one."""
        last = self._scaled.get(template.desired.key)
        if last is None or last[0] is not template or last[1].replicas != count:
            last = self._scaled[template.desired.key] = (template, template.at_scale(count))
        return last[1]

    def unknown(self, key: Key) -> str:
        """Why nothing scales ``key``; "" if its metric has values."""
        return self._unknown.message(key)

    def forget(self, key: Key) -> None:
        """Forget a deleted workload."""
        self._states.pop(key, None)
        self._scaled.pop(key, None)
        self._unknown.forget(key)


class CapacityRecommender:
    """The histories of all workloads of a location, in one file each below ``root``.

    A file is written at the end of each slot of five minutes. A file that cannot be written or read costs only the
    history: recommendations are just information for users.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._histories: dict[Key, Histories] = {}

    def observe(self, spec: WorkloadSpec, used: Mapping[ContainerId, Used], now: float) -> None:
        """Add the usage of a workload's containers in the last 15 seconds; ``now`` is monotonic time."""
        if not uses_capacity_ai(spec):
            self.forget(spec.key)
            return
        before = self._of(spec.key)
        after: Histories = {}
        for container in spec.containers:
            uses = [use for container_id, use in used.items() if container_id.container == container.name]
            after[container.name] = record_usage(before.get(container.name), spec.digest, uses, now)
        self._histories[spec.key] = after
        if any(name not in before or before[name].slots != history.slots for name, history in after.items()):
            with suppress(EngineError):
                write_atomic(self._path(spec.key), msgspec.json.encode(after), 0o600)

    def recommendations(self, spec: WorkloadSpec) -> dict[str, tuple[int, int]]:
        """Recommended millicores and bytes for each container of a workload with enough history."""
        if not uses_capacity_ai(spec):
            return {}
        histories = {name: history for name, history in self._of(spec.key).items() if history.digest == spec.digest}
        amounts = (
            (container.name, recommend_amount(histories.get(container.name), container))
            for container in spec.containers
        )
        return {name: (amount.cpu, amount.memory) for name, amount in amounts if amount is not None}

    def forget(self, key: Key) -> None:
        """Forget a workload that is deleted or has Capacity AI off."""
        self._histories.pop(key, None)
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _of(self, key: Key) -> Histories:
        if key not in self._histories:
            self._histories[key] = {}
            with suppress(OSError, msgspec.DecodeError):
                self._histories[key] = msgspec.json.decode(self._path(key).read_bytes(), type=Histories)
        return self._histories[key]

    def _path(self, key: Key) -> Path:
        return self._root / key.gvc / f"{key.name}.json"


class MeasuredRuntime(StatsSource, ResizingRuntime, Protocol):
    """The parts of a runtime that scaling uses."""


class ScaledWorkloads(Protocol):
    """The workloads of a location, as far as they are scaled."""

    def scalable(self) -> list[ReplicaTemplate]:
        """The newest template of each workload that can be scaled and is not being deleted."""

    def replicas(self, key: Key) -> Sequence[Replica]:
        """The replicas of a workload."""


class Scaling(LocationPart):
    """Scales ``workloads`` by the usage of their containers (``runtime``) and by their requests (``plane``).

    ``usage`` is the directory of the histories of usage.
    """

    def __init__(
        self,
        runtime: MeasuredRuntime,
        plane: TrafficSource,
        workloads: ScaledWorkloads,
        clock: Clock,
        signals: LocationSignals,
        usage: Path,
    ) -> None:
        self._workloads = workloads
        self._signals = signals
        self._clock = clock
        self._cpu = UsageMetric(runtime, clock)
        self._requests = RequestMetrics(plane, clock)
        self._autoscaler = Autoscaler(MetricSources((self._cpu, self._requests)), clock, signals)
        self._recommender = CapacityRecommender(usage)
        self._limits = CapacityLimits(runtime, clock, signals, usage / "limits.json")

    def want(self, template: ReplicaTemplate, _wanted: WorkloadSpec) -> WorkloadSpec:
        """As Autoscaler.spec_at_scale."""
        return self._autoscaler.spec_at_scale(template, self._workloads.replicas(template.desired.key))

    def wake(self, key: Key) -> None:
        """As RequestMetrics.wake."""
        self._requests.wake(key)

    def recommendations(self, spec: WorkloadSpec) -> dict[str, tuple[int, int]]:
        """As CapacityRecommender.recommendations."""
        return self._recommender.recommendations(spec)

    def limitations(self, template: ReplicaTemplate) -> Iterator[str]:
        """A sentence for each recommendation that is not in force."""
        return self._limits.problems(template.desired, self._list_recommendations(template.desired))

    def _list_recommendations(self, spec: WorkloadSpec) -> dict[str, Amount]:
        return {name: Amount(*pair) for name, pair in self._recommender.recommendations(spec).items()}

    def unknown(self, key: Key) -> str:
        """As Autoscaler.unknown."""
        return self._autoscaler.unknown(key)

    def forget(self, key: Key) -> None:
        """Forget a deleted workload."""
        self._autoscaler.forget(key)
        self._requests.forget(key)
        self._recommender.forget(key)

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Wants each workload again from time to time: those that follow requests every 2 seconds."""
        return self._follow_usage(), self._follow_requests()

    async def _follow_usage(self) -> None:
        while True:
            await self._clock.sleep(STEADY)
            with suppress(EngineError), contain_bugs("cpu metric"):
                await self._cpu.collect()
            for template in self._workloads.scalable():
                spec = template.desired
                with contain_bugs(f"scaling of {spec.key}"):
                    used = self._cpu.usage(spec.key)
                    self._recommender.observe(spec, used, self._clock.monotonic())
                    self._signals.want_again(template)
                    replicas = list(self._workloads.replicas(spec.key))
                    await self._limits.bring(spec, replicas, self._list_recommendations(spec), used)

    async def _follow_requests(self) -> None:
        while True:
            await self._clock.sleep(SAMPLE)
            with suppress(EngineError), contain_bugs("request metrics"):
                await self._requests.collect()
            for template in self._workloads.scalable():
                if get_interval(template.desired) == BRISK:
                    with contain_bugs(f"scaling of {template.desired.key}"):
                        self._rescale(template)

    def _rescale(self, template: ReplicaTemplate) -> None:
        """Want a workload again if it needs another number of replicas."""
        if self._autoscaler.needs_change(template, self._workloads.replicas(template.desired.key)):
            self._signals.want_again(template)
