"""Commands on workloads: an execution on demand, which is a Job made from the CronJob, and the end of a pod."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from reconciler.engines.context import EngineContext
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.engines.kubernetes.client.objects import (
    CRON_JOB,
    JOB,
    NAMESPACE,
    POD,
    SECRET,
    KubeObject,
    ObjectId,
    id_of,
)
from reconciler.engines.kubernetes.desired import AppliedResource, DesiredObjects
from reconciler.engines.kubernetes.mirror import ClusterMirror
from reconciler.engines.kubernetes.rendering.names import SHORT_LENGTH, workload_name
from reconciler.engines.kubernetes.status.executions import INSTANTIATE, MANUAL
from reconciler.engines.kubernetes.status.snapshots import COMMAND
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volumes import make_rejection
from reconciler.engines.workload.deployment import Execution, read_deployment
from reconciler.engines.workload.status import ExecutionState
from reconciler.engines.workload_commands import RunCronWorkload, apply_overrides, check_run, refuse_missing_replica
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.workload import read_specification
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

_OVER = (b'"type":"Complete"', b'"type":"Failed"')
"""What a Job has that has ended, in compact JSON."""


class ClusterCommands:
    """Performs the commands on workloads of the location of ``context``."""

    def __init__(self, context: EngineContext, api: KubeApi, mirror: ClusterMirror, desired: DesiredObjects) -> None:
        self._context = context
        self._api = api
        self._mirror = mirror
        self._desired = desired
        self._claims = VolumeClaims(context.records, context.settings.org)

    async def run(self, key: Key, ask: RunCronWorkload, command_id: str) -> dict[str, Any]:
        """Start an execution of a cron workload; returns it. Raises EngineError."""
        record = self._claims.record(key)
        if record is None:
            raise EngineError(f"there is no {key} at {self._context.location}", reason=Reason.NOT_FOUND, retry=False)
        check_run(key, read_specification(record.body), ask)
        body = msgspec.json.encode(apply_overrides(msgspec.json.decode(record.body), ask))
        applied = AppliedResource(key, body, record.digest, record.version)
        rendered = self._desired.render_workload(applied)
        schedule = next((item for item in rendered.objects if item["kind"] == CRON_JOB.kind), None)
        if schedule is None:
            raise make_rejection(f"{key} has no schedule at {self._context.location}", Reason.NOT_FOUND)
        job = _make_job(schedule, _job_name(key, command_id), command_id)
        for secret in (item for item in rendered.objects if item["kind"] == SECRET.kind):
            if self._mirror.get(id_of(secret)) is None:
                # Overrides have variables of their own, in a Secret that only this execution uses.
                await self._api.apply(secret, id_of(secret))
        target = id_of(job)
        try:
            created = await self._api.create(job, JOB, target.namespace)
        except ClusterError as error:
            there = await self._api.get(target) if error.code == 409 else None
            if there is None:
                raise
            created = there
        self._mirror.put(JOB, msgspec.json.encode(created))
        at = created["metadata"].get("creationTimestamp") or format_iso_time(self._context.clock.now())
        execution = Execution(target.name, record.version, "Active", at, "")
        plain: dict[str, Any] = msgspec.to_builtins(execution)
        return plain

    async def stop_replica(self, key: Key, name: str) -> dict[str, Any]:
        """Delete the pod ``name``, which its controller replaces. Raises EngineError if ``key`` has no such pod."""
        if (error := self._mirror.explain_unknown((POD,))) is not None:
            raise error
        pods = {item.id.name: item for item in self._mirror.of_key(key) if item.id.kind is POD}
        pod = pods.get(name) or refuse_missing_replica(key, name, pods)
        # It may be ending already: the command is performed again if the daemon was killed.
        if not pod.ending:
            await self._api.delete(pod.id, uid=pod.uid)
        return {"replica": name}

    async def end_invalid_executions(self) -> None:
        """Delete Jobs that are recorded as Invalid: under Forbid they skip all further times. Raises EngineError."""
        for item in self._mirror.of_kind(JOB):
            ours = self._mirror.get(ObjectId(NAMESPACE, "", item.id.namespace)) is not None
            if item.key is None or item.ending or not ours or any(mark in item.content for mark in _OVER):
                continue
            record = self._claims.record(item.key)
            deployment = read_deployment(record.state) if record is not None else None
            executions = deployment.status.job_executions if deployment is not None else ()
            if any((one.name, one.status) == (item.id.name, ExecutionState.INVALID) for one in executions):
                await self._api.delete(item.id, uid=item.uid)


def _make_job(schedule: KubeObject, name: str, command_id: str) -> KubeObject:
    """An execution on demand of a CronJob, as `kubectl create job --from` makes one."""
    template = schedule["spec"]["jobTemplate"]
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": name,
            "namespace": schedule["metadata"]["namespace"],
            "labels": metadata.get("labels") or schedule["metadata"]["labels"],
            "annotations": {
                **(metadata.get("annotations") or {}),
                COMMAND: command_id,
                INSTANTIATE: MANUAL,
            },
        },
        "spec": template["spec"],
    }


def _job_name(key: Key, command_id: str) -> str:
    suffix = blake2b(command_id.encode(), digest_size=5).hexdigest()
    return f"{workload_name(key.name)[: SHORT_LENGTH - 11]}-{suffix}"
