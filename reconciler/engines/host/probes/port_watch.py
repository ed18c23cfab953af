"""Sees that programs listen on their ports where no readiness probe asks: else requests have no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.decisions.replica import Phase, Replica, ReplicaContainer
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.probes.checks import ExecRuntime, ProbeTarget, describe_ports
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.signals import LocationSignals
from reconciler.model.key import Key

CHECK_SECONDS = 5.0
GRACE_SECONDS = 20.0
"""Seconds after its start in which a program need not listen yet."""


class PortWatch(LocationPart):
    """Looks at the first port of each container without a readiness probe of a port, until its program listens there.

    ``replicas`` returns those of the location that are as wanted: what former versions do is no longer of interest.
    """

    def __init__(
        self, runtime: ExecRuntime, replicas: Callable[[], Iterable[Replica]], clock: Clock, signals: LocationSignals
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._clock = clock
        self._signals = signals
        self._seen: dict[ContainerId, float] = {}
        self._faults: dict[ContainerId, str] = {}

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Looks at each container once it has had time to listen, and again while it does not."""
        return (self._run(),)

    def error(self, key: Key) -> str:
        """What the first container of a workload is told that does not listen; "" if all do."""
        faults = {
            container_id: fault for container_id, fault in sorted(self._faults.items()) if container_id.key == key
        }
        if not faults:
            return ""
        # Those of a rollout that has replaced the replica since are no longer of interest.
        serving = {replica.name for replica in self._replicas() if replica.key == key and replica.ending is None}
        return next((fault for container_id, fault in faults.items() if container_id.replica in serving), "")

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            with contain_bugs("ports of programs"):
                await self._check()

    async def _check(self) -> None:
        started = {target.place: container.started for target, container in self._list_targets()}
        self._seen = {container_id: at for container_id, at in self._seen.items() if started.get(container_id) == at}
        due = [target for target, container in self._list_targets() if self._is_due(target, container)]
        # What did not listen is due each time, unless it has started again since.
        faults = await asyncio.to_thread(self._find_faults, due) if due else {}
        self._seen |= {target.place: started[target.place] for target in due if not faults.get(target.place)}
        faults = {container_id: fault for container_id, fault in faults.items() if fault}
        if faults != self._faults:
            self._faults = faults
            self._signals.serving_changed()

    def _is_due(self, target: ProbeTarget, container: ReplicaContainer) -> bool:
        old = self._clock.monotonic() >= container.started + GRACE_SECONDS
        return old and target.place not in self._seen

    def _list_targets(self) -> Iterator[tuple[ProbeTarget, ReplicaContainer]]:
        for replica in self._replicas():
            for container in replica.containers if replica.ending is None else ():
                spec = container.wanted
                probed = spec.readiness is not None and not spec.readiness.exec
                if container.phase is Phase.RUNNING and spec.ports and not probed:
                    container_id = ContainerId(replica.key, replica.name, container.name)
                    yield ProbeTarget(container_id, spec, replica.ports), container

    def _find_faults(self, targets: Iterable[ProbeTarget]) -> Mapping[ContainerId, str]:
        return {target.place: describe_ports(self._runtime, target, target.container.ports[0]) for target in targets}
