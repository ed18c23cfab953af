"""Commands on a cluster: executions on demand, and changes of volumes and their snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from reconciler.engines.context import EngineContext
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.engines.kubernetes.client.objects import (
    CLAIM,
    CRON_JOB,
    JOB,
    NAMESPACE,
    POD,
    SECRET,
    STATEFUL_SET,
    STORAGE_CLASS,
    VOLUME_SNAPSHOT,
    KubeObject,
    ObjectId,
    id_of,
)
from reconciler.engines.kubernetes.desired import AppliedResource, DesiredObjects
from reconciler.engines.kubernetes.mirror import ClusterMirror, MirroredObject
from reconciler.engines.kubernetes.rendering.names import PREFIX, SHORT_LENGTH, claim_name, snapshot_name, workload_name
from reconciler.engines.kubernetes.status.fields import parse_quantity, read_field
from reconciler.engines.kubernetes.status.volumes import SNAPSHOT_EXPIRES, SNAPSHOT_NAME, SNAPSHOT_TAGS
from reconciler.engines.run_command import RunCronWorkload, apply_overrides, check_run
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volume_commands import (
    CreateVolumeSnapshot,
    DeleteVolume,
    DeleteVolumeSnapshot,
    ExpandVolume,
    RestoreVolume,
    VolumeCommand,
)
from reconciler.engines.volumes import make_rejection, read_volumes
from reconciler.engines.workload.deployment import Execution
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.volumeset import read_capacity
from reconciler.model.kinds.workload import read_specification
from reconciler.model.quantity import GIB
from reconciler.model.record import Record
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

COMMAND = f"{PREFIX}command"
"""The annotation with the id of the command that created an object: the same command creates no second one."""
MOST_TRIES = 60
"""How often a claim is tried to be replaced, once a second, while its pod ends."""


class ClusterCommands:
    """Performs the commands of the location of ``context``."""

    def __init__(self, context: EngineContext, api: KubeApi, mirror: ClusterMirror, desired: DesiredObjects) -> None:
        self._context = context
        self._api = api
        self._mirror = mirror
        self._desired = desired
        self._claims = VolumeClaims(context.records, context.settings.org)

    async def run(self, key: Key, ask: RunCronWorkload, command_id: str) -> dict[str, Any]:
        """Start an execution of a cron workload; returns it. Raises EngineError."""
        record = self._require_record(key)
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

    async def change_volume(self, key: Key, ask: VolumeCommand, command_id: str) -> dict[str, Any]:
        """Perform ``ask`` on a volume; returns the volume as it is then. Raises EngineError."""
        record = self._require_record(key)
        target = self._claim_id(key, record, ask.volume_index)
        match ask:
            case ExpandVolume(new_storage_capacity=size):
                await self._expand(target, ask.volume_index, size)
            case DeleteVolume():
                await self._replace_claim(key, target, None)
            case CreateVolumeSnapshot():
                await self._create_snapshot(target, ask, command_id)
            case DeleteVolumeSnapshot(snapshot_name=name):
                await self._api.delete(self._find_snapshot(key, target, name).id)
            case RestoreVolume(snapshot_name=name):
                await self._replace_claim(key, target, self._find_snapshot(key, target, name))
            case _:
                raise make_rejection(
                    f"{type(ask).__name__} is not possible at {self._context.location}: a cluster has it"
                )
        return await self._describe_claim(target, ask.volume_index)

    def find_user(self, key: Key) -> Key | None:
        """The workload that uses a volume set."""
        record = self._claims.record(key)
        volumes = read_volumes(record.state) if record is not None else None
        name = volumes.used_by_workload.rpartition("/")[2] if volumes is not None else ""
        return Key(Kind.WORKLOAD, key.gvc, name) if name else None

    async def grow_claims(self, key: Key, body: bytes) -> None:
        """Make the claims of a volume set as large as its manifest wants. Raises EngineError."""
        capacity = read_capacity(body)
        for claim in self._claims_of(key):
            if read_requested_size(claim.decode()) < capacity:
                await self._resize(claim.id, capacity)

    async def delete_claims(self, key: Key) -> bool:
        """Delete the claims and snapshots of a volume set; whether some are left. Raises EngineError."""
        error = self._mirror.explain_unknown((NAMESPACE, CLAIM))
        if error is not None:
            raise error
        if self._mirror.get(ObjectId(NAMESPACE, "", self._desired.namespace_of(key.gvc))) is None:
            # What controllers make names no instance: in a namespace of another one it is not ours.
            return False
        items = [item for item in self._mirror.of_key(key) if item.id.kind in (CLAIM, VOLUME_SNAPSHOT)]
        for item in items:
            if not item.ending:
                await self._api.delete(item.id, uid=item.uid)
        return bool(items)

    def _require_record(self, key: Key) -> Record:
        record = self._claims.record(key)
        if record is None:
            raise EngineError(f"there is no {key} at {self._context.location}", reason=Reason.NOT_FOUND, retry=False)
        return record

    def _claims_of(self, key: Key) -> list[MirroredObject]:
        return [item for item in self._mirror.of_key(key) if item.id.kind is CLAIM]

    def _claim_id(self, key: Key, record: Record, index: int) -> ObjectId:
        """The claim of a volume. Raises EngineError, reason VolumeNotFound."""
        state = read_volumes(record.state)
        workload = state.used_by_workload.rpartition("/")[2] if state is not None else ""
        target = ObjectId(CLAIM, self._desired.namespace_of(key.gvc), claim_name(key.name, workload, index))
        if not workload or self._mirror.get(target) is None:
            message = f"there is no volume {index} of {key} at {self._context.location}"
            raise make_rejection(message, Reason.VOLUME_NOT_FOUND)
        return target

    async def _expand(self, target: ObjectId, index: int, size: float) -> None:
        claim = await self._require_object(target)
        if read_requested_size(claim) >= size:
            raise make_rejection(
                f"volume {index} has {read_requested_size(claim):g} GB; newStorageCapacity must be larger"
            )
        await self._resize(target, size)

    async def _resize(self, target: ObjectId, size: float) -> None:
        await check_growth(self._api, target, await self._require_object(target))
        await self._api.patch(target, {"spec": {"resources": {"requests": {"storage": f"{size:g}Gi"}}}})

    async def _create_snapshot(self, target: ObjectId, ask: CreateVolumeSnapshot, command_id: str) -> None:
        self._require_snapshots()
        claim = await self._require_object(target)
        name = snapshot_name(target.name, ask.snapshot_name)
        metadata = claim["metadata"]
        annotations = {
            **{label: text for label, text in (metadata.get("annotations") or {}).items() if label.startswith(PREFIX)},
            COMMAND: command_id,
            SNAPSHOT_NAME: ask.snapshot_name,
            SNAPSHOT_EXPIRES: ask.snapshot_expiration_date,
            SNAPSHOT_TAGS: msgspec.json.encode(ask.tags).decode(),
        }
        snapshot = {
            "apiVersion": VOLUME_SNAPSHOT.api_version,
            "kind": VOLUME_SNAPSHOT.kind,
            "metadata": {
                "name": name,
                "namespace": target.namespace,
                "labels": metadata.get("labels") or {},
                "annotations": annotations,
            },
            "spec": {"source": {"persistentVolumeClaimName": target.name}},
        }
        try:
            created = await self._api.create(snapshot, VOLUME_SNAPSHOT, target.namespace)
        except ClusterError as error:
            there = (
                await self._api.get(ObjectId(VOLUME_SNAPSHOT, target.namespace, name)) if error.code == 409 else None
            )
            if there is None:
                raise
            if (there["metadata"].get("annotations") or {}).get(COMMAND) != command_id:
                message = f"volume {ask.volume_index} has a snapshot {ask.snapshot_name} already"
                raise make_rejection(message, Reason.SNAPSHOT_EXISTS) from None
            created = there
        self._mirror.put(VOLUME_SNAPSHOT, msgspec.json.encode(created))

    def _require_snapshots(self) -> None:
        if not self._desired.features.snapshots:
            message = f"the cluster of {self._context.location} serves no VolumeSnapshot; install a snapshot controller"
            raise EngineError(message, reason=Reason.KIND_NOT_SERVED, retry=False)

    def _find_snapshot(self, key: Key, target: ObjectId, name: str) -> MirroredObject:
        self._require_snapshots()
        snapshot = self._mirror.get(ObjectId(VOLUME_SNAPSHOT, target.namespace, snapshot_name(target.name, name)))
        if snapshot is None or snapshot.key != key:
            raise make_rejection(f"{target.name} has no snapshot {name}", Reason.SNAPSHOT_NOT_FOUND)
        return snapshot

    async def _replace_claim(self, key: Key, target: ObjectId, snapshot: MirroredObject | None) -> None:
        """Put a new claim in the place of one: empty, or with the data of ``snapshot``.

        The StatefulSet would create an empty one by itself, so it is away meanwhile; its pods stay.
        """
        claim = await self._require_object(target)
        workload = self.find_user(key)
        if workload is None:
            raise make_rejection(f"no workload uses {key}", Reason.VOLUME_NOT_FOUND)
        runs = ObjectId(STATEFUL_SET, target.namespace, workload_name(workload.name))
        index = target.name.rpartition("-")[2]
        await self._api.delete(runs, orphan=True)
        await self._api.delete(target, uid=claim["metadata"]["uid"])
        await self._api.delete(ObjectId(POD, target.namespace, f"{runs.name}-{index}"))
        fresh = _without_server_fields(claim)
        if snapshot is not None:
            fresh["spec"]["dataSource"] = {
                "apiGroup": VOLUME_SNAPSHOT.group,
                "kind": VOLUME_SNAPSHOT.kind,
                "name": snapshot.id.name,
            }
        try:
            await self._create_claim(target, fresh, claim["metadata"]["uid"])
        finally:
            await self._run_again(workload)

    async def _create_claim(self, target: ObjectId, fresh: KubeObject, former: str) -> None:
        """Create ``fresh`` once the claim with the uid ``former`` has ended. Raises EngineError if another is there."""
        for _ in range(MOST_TRIES):
            there = await self._api.get(target)
            if there is None:
                await self._api.create(fresh, CLAIM, target.namespace)
                return
            if there["metadata"]["uid"] != former:
                if "dataSource" not in fresh["spec"]:
                    return
                message = f"{target} was made meanwhile without the data of the snapshot; restore it again"
                raise EngineError(message, reason=Reason.CLUSTER_BUSY)
            await self._context.clock.sleep(1.0)
        raise EngineError(f"{target} does not end; look for its finalizers", reason=Reason.TERMINATING)

    async def _run_again(self, workload: Key) -> None:
        """Make the StatefulSet of a workload that was away."""
        record = self._require_record(workload)
        applied = AppliedResource(workload, record.body, record.digest, record.version)
        rendered = self._desired.render_workload(applied)
        restored = next(item for item in rendered.objects if item["kind"] == STATEFUL_SET.kind)
        await self._api.apply(restored, id_of(restored), force=True)

    async def _require_object(self, target: ObjectId) -> KubeObject:
        item = await self._api.get(target)
        if item is None:
            raise EngineError(f"there is no {target}", reason=Reason.VOLUME_NOT_FOUND, retry=False)
        return item

    async def _describe_claim(self, target: ObjectId, index: int) -> dict[str, Any]:
        claim = await self._api.get(target)
        size = read_requested_size(claim) if claim is not None else 0.0
        return {"index": index, "currentSize": size}


async def check_growth(api: KubeApi, target: ObjectId, claim: Mapping[str, Any]) -> None:
    """Raise EngineError if the StorageClass of ``claim``, the object ``target``, lets none of its claims grow."""
    name = claim["spec"].get("storageClassName", "")
    storage_class = await api.get(ObjectId(STORAGE_CLASS, "", name)) if name else None
    if storage_class is None or not storage_class.get("allowVolumeExpansion"):
        message = f"{target} cannot grow: its StorageClass {name or '(none)'} does not allow volume expansion"
        raise EngineError(message, reason=Reason.VOLUME_UNAVAILABLE, retry=False)


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
                "cronjob.kubernetes.io/instantiate": "manual",
            },
        },
        "spec": template["spec"],
    }


def _job_name(key: Key, command_id: str) -> str:
    suffix = blake2b(command_id.encode(), digest_size=5).hexdigest()
    return f"{workload_name(key.name)[: SHORT_LENGTH - 11]}-{suffix}"


def read_requested_size(claim: Mapping[str, Any]) -> float:
    """The requested size of a claim, in GB."""
    return parse_quantity(read_field(claim, "spec", "resources", "requests", "storage")) / GIB


def _without_server_fields(claim: KubeObject) -> KubeObject:
    """A claim as it can be created again."""
    metadata = claim["metadata"]
    spec = {name: value for name, value in claim["spec"].items() if name not in ("volumeName", "dataSourceRef")}
    return {
        "apiVersion": CLAIM.api_version,
        "kind": CLAIM.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": metadata.get("labels") or {},
            "annotations": {
                label: text for label, text in (metadata.get("annotations") or {}).items() if label.startswith(PREFIX)
            },
        },
        "spec": spec,
    }
