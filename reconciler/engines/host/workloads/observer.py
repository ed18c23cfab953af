"""Observes the workloads of a location: their status, as it is recorded."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.engines.host.controllers.workload import WorkloadController
from reconciler.engines.host.location import HostLocation
from reconciler.engines.host.status import StatusContext, workload_health, workload_status
from reconciler.engines.protocol import Observation
from reconciler.engines.workload.deployment import DeploymentTarget
from reconciler.engines.workload.status import ending_message, with_message
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key
from reconciler.model.record import Health


class WorkloadObserver:
    """Observes what the parts of a location make of its workloads."""

    def __init__(self, location: HostLocation) -> None:
        self._location = location

    def observe_all(self) -> list[Observation]:
        """All workloads, those being deleted included."""
        return self.observe_some(self._location.controller.workloads)

    def observe_some(self, keys: Iterable[Key]) -> list[Observation]:
        """Those of ``keys`` that exist."""
        found = map(self.observe, sorted(keys))
        return [observation for observation in found if observation is not None]

    def observe_health(self, key: Key) -> Observation | None:
        """The workload ``key`` without its state, which costs more: that is observed afterwards."""
        location, name = self._location, self._location.context.location
        template, controller = location.templates.newest.get(key), location.controller.workloads.get(key)
        if template is None or controller is None or controller.wanted is None:
            return self.observe(key)
        health, spec = Health.UNKNOWN, template.desired
        with contain_bugs(f"health of {key}"):
            replicas, now = tuple(controller.replicas.values()), location.context.clock.monotonic()
            error, rerouting = location.error(key), controller.rerouting
            health = workload_health(controller.wanted, replicas, error, now, rerouting=rerouting)
        return Observation(key, name, health, b"", spec.digest, spec.version)

    def observe(self, key: Key) -> Observation | None:
        """The workload ``key``; None if there is none."""
        location, name = self._location, self._location.context.location
        template, controller = location.templates.newest.get(key), location.controller.workloads.get(key)
        if template is None or controller is None:
            return None
        spec = template.desired
        if controller.wanted is None:
            record = location.claims.record(key)
            state = with_message(record.state, ending_message(controller.last_error)) if record is not None else b"{}"
            return Observation(key, name, Health.DELETING, state, spec.digest, spec.version)
        health, state = Health.UNKNOWN, b"{}"
        with contain_bugs(f"status of {key}"):
            context = self._status_context(template, controller)
            health, deployment = workload_status(controller.wanted, tuple(controller.replicas.values()), context)
            state = msgspec.json.encode(deployment)
        return Observation(key, name, health, state, spec.digest, spec.version)

    def _status_context(self, template: ReplicaTemplate, controller: WorkloadController) -> StatusContext:
        location, spec, executions = self._location, template.desired, controller.executions
        key, env_context, context = spec.key, template.env_context, location.context
        target = DeploymentTarget(
            env_context.location, env_context.alias, spec.gvc_version, context.settings.endpoint_domain
        )
        return StatusContext(
            target,
            context.clock.monotonic(),
            location.upkeep.epoch,
            location.error(key),
            tuple(location.limitations(template)),
            location.upkeep.clock_jumped,
            location.scaling.recommendations(spec),
            location.templates.creation_times(key),
            location.images.find_resolved(key, spec.version),
            location.publisher.address(key),
            location.scaling.unknown(key),
            location.publisher.domain_endpoints(key),
            executions.status() if executions is not None else (),
            executions.conditions() if executions is not None else (),
            controller.rerouting,
        )
