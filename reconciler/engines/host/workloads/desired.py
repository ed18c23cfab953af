"""Sets what is wanted of the workloads of a location, by steps, by changed inputs and by commands."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.bugs import internal_error
from reconciler.engines.context import EngineContext
from reconciler.engines.host.location import HostLocation
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.runtimes.protocol import Runtime
from reconciler.engines.host.workloads.observer import WorkloadObserver
from reconciler.engines.protocol import Outcome, Result
from reconciler.engines.workload.status import ending_message
from reconciler.engines.workload.template import PlatformSettings, ReplicaTemplate, TemplateBuilder
from reconciler.engines.workload_commands import RunCronWorkload, check_run
from reconciler.errors import EngineError, RecordsError
from reconciler.manifests.field_schema import recorded_sentences
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Specification, read_specification
from reconciler.model.record import Record
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason


class DesiredWorkloads(LocationPart):
    """Tells the parts of ``location`` what they have to make of its workloads."""

    def __init__(self, location: HostLocation) -> None:
        self._location = location
        self._claims, self._signals = location.claims, location.signals
        self._observer = WorkloadObserver(location)
        self._builder = TemplateBuilder(
            location.claims,
            location.context.records,
            location.tokens.of,
            platform_settings(location.context, location.runtime),
            location.context.clock,
        )

    def wake(self, key: Key) -> None:
        """Start a replica for a request that waits."""
        self.reload(key)

    def reload(self, key: Key) -> None:
        """Want the workload ``key`` again, unless it was deleted."""
        record = self._claims.record(key)
        if record is not None:
            self.want_existing(record)
        self._signals.report_change(key)

    def want_again(self, template: ReplicaTemplate) -> None:
        """Want the replicas of a template, as many as scaling wants."""
        self._location.want(template)

    def want_existing(self, record: Record) -> None:
        """Want the workload as it is recorded, unless it does not exist or is being deleted."""
        if self._location.find_desired_spec(record.key) is not None:
            self.want_recorded(record)

    def want_recorded(self, record: Record) -> None:
        """Want the workload as it is recorded, with its current inputs; a failure affects no other workload."""
        try:
            self._location.read_manifest(record.key, record.body, record.revision)
            spec = self._location.templates.specification(record)
            self._location.want(self._template(record.key, spec, record.version, record.digest, record.body))
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug with one workload must not take the others down
            engine_error = error if isinstance(error, EngineError) else internal_error(error, f"workload {record.key}")
            self._signals.report(record.key, Reason.WORKLOAD_ERROR, f"{engine_error.reason}: {engine_error}")

    def run(self, key: Key, ask: RunCronWorkload, command_id: str) -> dict[str, Any]:
        """Start an execution of a cron workload; returns it. Raises EngineError."""
        here, record = self._location.context.location, self._claims.record(key)
        limit = check_run(key, read_specification(record.body), ask) if record is not None else 0
        controller = self._location.controller.workloads.get(key)
        if controller is None or controller.wanted is None or controller.executions is None:
            raise EngineError(f"there is no {key} at {here}", reason=Reason.NOT_FOUND, retry=False)
        execution = controller.executions.run(controller.wanted, ask.container_overrides, limit, command_id)
        controller.wake()
        created: dict[str, Any] = msgspec.to_builtins(execution)
        return created

    def perform(self, step: Step) -> Outcome:
        """Set the desired state of ``step``. Raises EngineError."""
        key, location = step.key, self._location
        past = self._claims.record(key)
        spec = read_specification(step.body) if step.action is not Action.DELETE else None
        also = tuple(self._claims.affected_volumesets(step, spec, past))
        newest = location.templates.newest.get(key)
        replaced = step.action is Action.REPLACE and newest is not None and newest.desired.digest != step.digest
        if spec is None or replaced:
            location.end(key)
            if not location.controller.is_removed(key):
                return self._terminating(step)
            location.forget(key)
        if spec is None:
            return Outcome(step.id, Result.APPLIED, also=location.volume_sets.update(also))
        revision = self._claims.revision(past.source) if past is not None else ""
        location.read_manifest(key, step.body, revision)
        location.want(self._template(key, spec, step.version, step.digest, step.body))
        seen = self._observer.observe_health(key)
        return Outcome(step.id, Result.APPLIED, seen=seen, also=location.volume_sets.update(also))

    def _terminating(self, step: Step) -> Outcome:
        message = ending_message(self._location.controller.error(step.key), step.location)
        return Outcome(step.id, Result.WAITING, Reason.TERMINATING, message, seen=self._observer.observe(step.key))

    def _template(self, key: Key, spec: Specification, version: int, digest: str, body: bytes) -> ReplicaTemplate:
        location = self._location
        images = location.images.digests(key, version) if spec.support_dynamic_tags else ()
        template = self._builder.of(key, spec, version, digest, images)
        template = msgspec.structs.replace(template, unmodelled=recorded_sentences(str(key.kind), body))
        location.runtime.prepare(template.desired)
        in_use = {(replica.version, replica.config_hash) for replica in location.replicas(key)}
        return location.templates.add(template, in_use)


def platform_settings(context: EngineContext, runtime: Runtime) -> PlatformSettings:
    """What templates need of the settings and the runtime of a location."""
    settings = context.settings
    return PlatformSettings(
        settings.org,
        context.location,
        settings.endpoint_domain,
        settings.scheme,
        runtime.name,
        runtime.resizes,
        settings.cloud_accounts,
        uses_images=runtime.image_store is not None,
        api=settings.api.endpoint if settings.api is not None else "",
        restrictions=settings.podman.restrictions if runtime.image_store is not None else (),
        user_namespaces=settings.podman.user_namespaces if runtime.image_store is not None else None,
    )
