"""Computes the current number of replicas of each workload of a location from a source of metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.decide import ScaleState, averaging_period, initial_state, next_scale
from reconciler.engines.host.autoscaling.metrics import MetricSource, counted_replicas
from reconciler.engines.host.provisioning.template import ReplicaTemplate
from reconciler.engines.host.replica import Replica
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.engines.protocol import EngineEvent
from reconciler.model.key import Key
from reconciler.model.kinds.workload import metric_of
from reconciler.reasons import Reason


class Autoscaler:
    """Remembers the scaling decisions for each workload; a new daemon continues from the existing replicas."""

    def __init__(self, source: MetricSource, clock: Clock, append_event: Callable[[EngineEvent], None]) -> None:
        self._source = source
        self._append_event = append_event
        self._clock = clock
        self._states: dict[Key, ScaleState] = {}

    def spec_at_scale(self, template: ReplicaTemplate, replicas: Sequence[Replica]) -> WorkloadSpec:
        """``template``'s specification with the number of replicas that its metric requires; ``replicas`` exist now."""
        base, now = template.desired, self._clock.monotonic()
        live = [replica for replica in replicas if replica.ending is None]
        before = self._states.get(base.key) or initial_state(base, len(live), now)
        metric = metric_of(base.type, base.options)
        reading = self._source.read(base, counted_replicas(metric, live, now), averaging_period(before, base, now))
        state, count = next_scale(before, base, reading, now)
        self._states[base.key] = state
        if reading is not None and state.decided == now != before.decided and count != before.replicas:
            target = base.options.autoscaling.target
            text = f"from {before.replicas} to {count} replicas: {metric} is {reading.value:.4g}, its target {target:g}"
            self._append_event(EngineEvent(base.key, Reason.SCALED, text))
        return template.at_scale(count)

    def forget(self, key: Key) -> None:
        """Forget a deleted workload."""
        self._states.pop(key, None)
