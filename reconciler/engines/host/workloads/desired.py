"""Sets what is wanted of the workloads of a location, by steps, by changed inputs and by commands."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.bugs import internal_error
from reconciler.engines.host.status import ending_message
from reconciler.engines.host.workloads.observer import WorkloadObserver
from reconciler.engines.host.workloads.parts import LocationParts
from reconciler.engines.protocol import EngineEvent, Outcome, Result
from reconciler.engines.run_command import RunCronWorkload, check_run
from reconciler.engines.workload.spec import Type
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError, RecordsError
from reconciler.manifests.field_schema import recorded_sentences
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Specification, read_specification
from reconciler.model.record import Record
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason


class DesiredWorkloads:
    """Tells the parts of a location what they have to make of its workloads."""

    def __init__(self, parts: LocationParts) -> None:
        self._parts = parts
        self._observer = WorkloadObserver(parts)

    def wake(self, key: Key) -> None:
        """Start a replica for a request that waits."""
        self._parts.scaling.wake(key)
        self.reload_key(key)

    def reload_key(self, key: Key) -> None:
        """Want the workload ``key`` again, unless it was deleted."""
        record = self._parts.claims.record(key)
        if record is not None:
            self.reload_existing(record)
        self._parts.changed()

    def reload_existing(self, record: Record) -> None:
        """Want the workload as it is recorded, unless it does not exist or is being deleted."""
        controller = self._parts.controller.workloads.get(record.key)
        if controller is not None and controller.wanted is not None:
            self.reload(record)

    def reload(self, record: Record) -> None:
        """Want the workload as it is recorded, with its current inputs; a failure affects no other workload."""
        try:
            self._read_tags(record.key, record.body, record.revision)
            spec = self._parts.templates.specification(record)
            self.want(self._template(record.key, spec, record.version, record.digest, record.body))
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug with one workload must not take the others down
            known = error if isinstance(error, EngineError) else internal_error(error, f"workload {record.key}")
            self._parts.append_event(EngineEvent(record.key, Reason.WORKLOAD_ERROR, f"{known.reason}: {known}"))

    def run(self, key: Key, ask: RunCronWorkload, command_id: str) -> dict[str, Any]:
        """Start an execution of a cron workload; returns it. Raises EngineError."""
        here, record = self._parts.site.location, self._parts.claims.record(key)
        limit = check_run(key, read_specification(record.body), ask) if record is not None else 0
        controller = self._parts.controller.workloads.get(key)
        if controller is None or controller.wanted is None or controller.executions is None:
            raise EngineError(f"there is no {key} at {here}", reason=Reason.NOT_FOUND, retry=False)
        execution = controller.executions.run(controller.wanted, ask.container_overrides, limit, command_id)
        controller.wake()
        created: dict[str, Any] = msgspec.to_builtins(execution)
        return created

    def perform(self, step: Step) -> Outcome:
        """Set the desired state of ``step``. Raises EngineError."""
        key, past = step.key, self._parts.claims.record(step.key)
        spec = read_specification(step.body) if step.action is not Action.DELETE else None
        also = tuple(self._parts.claims.affected_volumesets(step, spec, past))
        made = self._parts.templates.newest.get(key)
        replaced = step.action is Action.REPLACE and made is not None and made.desired.digest != step.digest
        if spec is None or replaced:
            self._parts.publisher.withdraw(key)
            self._parts.controller.want(key, None)
            if not self._parts.controller.is_removed(key):
                return self._terminating(step)
            self._forget(key)
        if spec is None:
            return Outcome(step.id, Result.APPLIED, also=self._parts.volumes.update(also))
        self._read_tags(key, step.body, self._parts.claims.revision(past.source) if past is not None else "")
        self.want(self._template(key, spec, step.version, step.digest, step.body))
        return Outcome(step.id, Result.APPLIED, seen=self._observer.observe(key), also=self._parts.volumes.update(also))

    def _terminating(self, step: Step) -> Outcome:
        controller = self._parts.controller.workloads.get(step.key)
        message = ending_message(controller.last_error if controller is not None else "", step.location)
        return Outcome(step.id, Result.WAITING, Reason.TERMINATING, message, seen=self._observer.observe(step.key))

    def _template(self, key: Key, spec: Specification, version: int, digest: str, body: bytes) -> ReplicaTemplate:
        images = self._parts.images.digests(key, version) if spec.support_dynamic_tags else ()
        template = self._parts.builder.of(key, spec, version, digest, images)
        template = msgspec.structs.replace(template, unmodelled=recorded_sentences(str(key.kind), body))
        self._parts.runtime.prepare(template.desired)
        in_use = {(each.version, each.config_hash) for each in self._parts.controller.replicas(key)}
        return self._parts.templates.add(template, in_use)

    def want(self, template: ReplicaTemplate) -> None:
        """Want the replicas of a template, as many as scaling wants."""
        key = template.desired.key
        replicas = self._parts.controller.replicas(key)
        self._parts.publisher.publish(template)
        wanted = self._parts.scaling.spec_at_scale(template, replicas)
        versions, images = {each.version for each in replicas}, self._parts.controller.images_of(key, wanted.version)
        self._parts.controller.want(key, self._parts.images.admit(template, wanted, versions, images))

    def rescale(self, template: ReplicaTemplate) -> None:
        """Want the workload of a template again if it needs another number of replicas."""
        if self._parts.scaling.needs_change(template, self._parts.controller.replicas(template.desired.key)):
            self.want(template)

    def _read_tags(self, key: Key, body: bytes, revision: str) -> None:
        self._parts.publisher.read_tags(key, body)
        self._parts.volumes.releases.read(key, body, revision)

    def _forget(self, key: Key) -> None:
        self._parts.volumes.releases.forget(key)
        self._parts.images.forget(key)
        self._parts.publisher.forget(key)
        self._parts.templates.forget(key)
        self._parts.scaling.forget(key)
        self._parts.tokens.forget(key)

    def scalable(self) -> list[ReplicaTemplate]:
        """The newest template of each workload that can be scaled and is not being deleted."""
        workloads, newest = self._parts.controller.workloads, self._parts.templates.newest
        running = {key for key, controller in workloads.items() if controller.wanted is not None}
        scaled = ((key, template) for key, template in newest.items() if template.desired.type is not Type.CRON)
        return [template for key, template in scaled if key in running]
