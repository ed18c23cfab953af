"""Observes the workloads of a location: their status, as it is recorded."""

from __future__ import annotations

import msgspec

from reconciler.bugs import contained
from reconciler.engines.host.decisions.execution_results import ExecutionCondition
from reconciler.engines.host.status import StatusContext, ending_message, with_message, workload_status
from reconciler.engines.host.workloads.parts import LocationParts
from reconciler.engines.protocol import Observation
from reconciler.engines.workload.deployment import DeploymentTarget, Execution
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key
from reconciler.model.record import Health


class WorkloadObserver:
    """Observes what the parts of a location make of its workloads."""

    def __init__(self, parts: LocationParts) -> None:
        self._parts = parts

    def observe_all(self) -> list[Observation]:
        """All workloads, those being deleted included."""
        found = [self.observe(key) for key in sorted(self._parts.controller.workloads)]
        return [each for each in found if each is not None]

    def observe(self, key: Key) -> Observation | None:
        """The workload ``key``; None if there is none."""
        parts = self._parts
        template, controller = parts.templates.newest.get(key), parts.controller.workloads.get(key)
        if template is None or controller is None:
            return None
        wanted, location = template.desired, parts.site.location
        if controller.wanted is None:
            record = parts.claims.record(key)
            state = with_message(record.state, ending_message(controller.last_error)) if record is not None else b"{}"
            return Observation(key, location, Health.DELETING, state, wanted.digest, wanted.version)
        health, state = Health.UNKNOWN, b"{}"
        with contained(f"status of {key}"):
            errors = filter(None, (parts.images.error(key), parts.publisher.error(key), controller.last_error))
            context = self._status_context(template, "; ".join(errors))
            health, deployment = workload_status(controller.wanted, tuple(controller.replicas.values()), context)
            state = msgspec.json.encode(deployment)
        return Observation(key, location, health, state, wanted.digest, wanted.version)

    def _status_context(self, template: ReplicaTemplate, error: str) -> StatusContext:
        parts = self._parts
        known, domain = template.env_context, parts.site.settings.endpoint_domain
        place = DeploymentTarget(known.location, known.alias, template.desired.gvc_version, domain)
        advised = parts.scaling.recommendations(template.desired)
        key, wanted = template.desired.key, template.desired
        lacking = (
            *parts.runtime.limitations(wanted),
            *parts.publisher.limitations(wanted),
            *parts.provisioner.limitations(template),
            *parts.scraper.limitations(wanted),
            *parts.scaling.limitations(wanted),
        )
        now, upkeep = parts.site.clock.monotonic(), parts.upkeep
        created, address = parts.templates.created(key), parts.publisher.address(key)
        images = parts.images.resolved(key, wanted.version)
        return StatusContext(
            place,
            now,
            upkeep.epoch,
            error,
            lacking,
            upkeep.clock_jumped,
            advised,
            created,
            images,
            address,
            parts.scaling.unknown(key),
            parts.publisher.domain_endpoints(key),
            *self._executions(key),
        )

    def _executions(self, key: Key) -> tuple[tuple[Execution, ...], tuple[ExecutionCondition, ...]]:
        controller = self._parts.controller.workloads.get(key)
        found = controller.executions if controller is not None else None
        return (found.status(), found.conditions()) if found is not None else ((), ())
