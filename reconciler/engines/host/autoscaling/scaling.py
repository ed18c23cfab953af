"""Everything about scale at one location: its metrics, the decisions on replicas, and the recommended sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from reconciler.bugs import contained
from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.autoscaler import Autoscaler
from reconciler.engines.host.autoscaling.decide import BRISK, STEADY, interval
from reconciler.engines.host.autoscaling.metrics import CpuMetric, MetricSource, MetricSources, StatsSource
from reconciler.engines.host.autoscaling.recommender import CapacityRecommender
from reconciler.engines.host.provisioning.template import ReplicaTemplate
from reconciler.engines.host.replica import Replica
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.engines.protocol import EngineEvent
from reconciler.errors import EngineError
from reconciler.model.key import Key


class Scaling:
    """Scales workloads by the usage of their containers (``runtime``) and by their requests (``requests``).

    ``usage`` is the directory of the histories of usage.
    """

    def __init__(
        self,
        runtime: StatsSource,
        requests: MetricSource,
        clock: Clock,
        append_event: Callable[[EngineEvent], None],
        usage: Path,
    ) -> None:
        self._clock = clock
        self._cpu = CpuMetric(runtime, clock)
        self._autoscaler = Autoscaler(MetricSources((self._cpu, requests)), clock, append_event)
        self._recommender = CapacityRecommender(usage)

    def spec_at_scale(self, template: ReplicaTemplate, replicas: Sequence[Replica]) -> WorkloadSpec:
        """As Autoscaler.spec_at_scale."""
        return self._autoscaler.spec_at_scale(template, replicas)

    def recommendations(self, wanted: WorkloadSpec) -> dict[str, tuple[int, int]]:
        """As CapacityRecommender.recommendations."""
        return self._recommender.recommendations(wanted)

    def forget(self, key: Key) -> None:
        """Forget a deleted workload."""
        self._autoscaler.forget(key)
        self._recommender.forget(key)

    async def run(
        self, templates: Callable[[], Iterable[ReplicaTemplate]], want: Callable[[ReplicaTemplate], None]
    ) -> None:
        """Pass each of ``templates()`` to ``want`` whenever its number of replicas may change, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_usage(templates, want))
            group.create_task(self._follow_requests(templates, want))

    async def _follow_usage(
        self, templates: Callable[[], Iterable[ReplicaTemplate]], want: Callable[[ReplicaTemplate], None]
    ) -> None:
        while True:
            await self._clock.sleep(STEADY)
            with suppress(EngineError), contained("cpu metric"):
                await self._cpu.collect()
            for template in templates():
                wanted = template.desired
                with contained(f"scaling of {wanted.key}"):
                    self._recommender.observe(wanted, self._cpu.usage(wanted.key), self._clock.monotonic())
                    want(template)

    async def _follow_requests(
        self, templates: Callable[[], Iterable[ReplicaTemplate]], want: Callable[[ReplicaTemplate], None]
    ) -> None:
        while True:
            await self._clock.sleep(BRISK)
            for template in templates():
                if interval(template.desired) == BRISK:
                    with contained(f"scaling of {template.desired.key}"):
                        want(template)
