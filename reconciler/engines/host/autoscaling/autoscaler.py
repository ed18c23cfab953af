"""How many replicas each workload of a location shall have now: the loops of autoscaling, over a source of metrics."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.decide import ScaleState, averaged_over, begun, next_scale
from reconciler.engines.host.autoscaling.metrics import MetricSource, counted_replicas
from reconciler.engines.host.provisioning.template import ReplicaTemplate
from reconciler.engines.host.replica import Replica
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.model.key import Key
from reconciler.model.kinds.workload import metric_of


class Autoscaler:
    """Remembers what was decided about each workload; a daemon that starts goes on from the replicas there are."""

    def __init__(self, source: MetricSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._states: dict[Key, ScaleState] = {}

    def spec_at_scale(self, supply: ReplicaTemplate, replicas: Sequence[Replica]) -> WorkloadSpec:
        """What ``supply`` makes wanted now, in as many replicas as its metric asks for; ``replicas`` are there."""
        base, now = supply.desired, self._clock.monotonic()
        live = [replica for replica in replicas if replica.ending is None]
        state = self._states.get(base.key) or begun(base, len(live), now)
        counted = counted_replicas(metric_of(base.type, base.options), live, now)
        reading = self._source.read(base, counted, averaged_over(state, base, now))
        state, count = next_scale(state, base, reading, now)
        self._states[base.key] = state
        return supply.at_scale(count)

    def forget(self, key: Key) -> None:
        """The workload is gone."""
        self._states.pop(key, None)
