"""Changes of the volumes of a cluster: by commands, by the step of a volume set, and at its deletion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import (
    CLAIM,
    NAMESPACE,
    POD,
    STATEFUL_SET,
    STORAGE_CLASS,
    VOLUME_SNAPSHOT,
    KubeObject,
    ObjectId,
)
from reconciler.engines.kubernetes.mirror import MirroredObject
from reconciler.engines.kubernetes.parts import ClusterParts
from reconciler.engines.kubernetes.rendering.names import claim_name, snapshot_name, workload_name
from reconciler.engines.kubernetes.rendering.volumes import storage_class_of
from reconciler.engines.kubernetes.status.fields import parse_quantity, read_field, read_text
from reconciler.engines.kubernetes.status.snapshots import (
    COMMAND,
    FINAL,
    LiveSnapshot,
    SnapshotPhase,
    read_index,
)
from reconciler.engines.kubernetes.volumes.restores import ReplacedVolumes, without_server_fields
from reconciler.engines.kubernetes.volumes.snapshots import REPLACES, ClaimSnapshots, SnapshotRequest
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volume_commands import (
    CreateVolumeSnapshot,
    DeleteVolume,
    DeleteVolumeSnapshot,
    ExpandVolume,
    RestoreVolume,
    VolumeCommand,
)
from reconciler.engines.volumes import VolumeLifecycle, VolumeSetState, make_rejection, read_volumes
from reconciler.engines.workload.volume_upkeep import compact_time
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.volumeset import Specification as VolumeSetSpecification
from reconciler.model.kinds.volumeset import read_capacity
from reconciler.model.quantity import GIB
from reconciler.model.record import Record
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

MOST_TRIES = 60
"""How often a claim is tried to be replaced, once a second, while its pod ends."""
RunAgain = Callable[[Record], Awaitable[object]]
"""Makes the cluster have what the record of a workload wants."""


class VolumeCommands:
    """Changes the volumes of a location; ``run_again`` makes a workload anew that was away."""

    def __init__(self, parts: ClusterParts, run_again: RunAgain) -> None:
        self._context, self._api, self._mirror, self._desired, self._applier = parts
        self._run_again = run_again
        self._claims = VolumeClaims(parts.context.records, parts.context.settings.org)
        self.snapshots = ClaimSnapshots(parts.api, parts.mirror, parts.context.clock)
        self.replaced = ReplacedVolumes(parts, self.snapshots)
        self.replacing: set[Key | None] = set()
        """The workloads of which a volume is replaced now: they are away for a moment, and that is no drift."""

    async def change_volume(self, key: Key, ask: VolumeCommand, command_id: str) -> dict[str, Any]:
        """Perform ``ask`` on a volume; returns the volume as it is then. Raises EngineError."""
        record = self._require_record(key)
        index = ask.volume_index
        target = self._claim_id(key, record, index)
        match ask:
            case ExpandVolume(new_storage_capacity=size):
                await self._expand(target, index, size)
            case DeleteVolume():
                await self._delete_volume(key, target)
            case CreateVolumeSnapshot():
                await self._create_snapshot(key, target, ask, command_id)
            case DeleteVolumeSnapshot(snapshot_name=name):
                await self.snapshots.delete(target.namespace, [self._find_snapshot(key, index, name)])
            case RestoreVolume(snapshot_name=name):
                snapshot = self._find_snapshot(key, index, name)
                volume = await self.replaced.secure(key, target, snapshot, command_id)
                if volume is not None:
                    await self._replace_claim(key, target, snapshot, volume)
            case _:
                raise make_rejection(
                    f"{type(ask).__name__} is not possible at {self._context.location}: a cluster has it"
                )
        return await self._describe_claim(target, index)

    def find_user(self, key: Key) -> Key | None:
        """The workload that uses a volume set."""
        record = self._claims.record(key)
        volumes = read_volumes(record.state) if record is not None else None
        name = volumes.used_by_workload.rpartition("/")[2] if volumes is not None else ""
        return Key(Kind.WORKLOAD, key.gvc, name) if name else None

    async def grow_claims(self, key: Key, body: bytes) -> None:
        """Make the claims of a volume set as large as its manifest wants. Raises EngineError."""
        capacity = read_capacity(body)
        for claim in self.snapshots.claims_of(key):
            if read_requested_size(claim.decode()) < capacity:
                await self.resize(claim.id, capacity)

    async def delete_claims(self, key: Key, *, final: bool) -> str:
        """Delete the claims and snapshots of a volume set, after ``final`` snapshots; what it waits for, "" if nothing.

        Nothing is deleted before all final snapshots can be restored. Raises EngineError.
        """
        error = self._mirror.explain_unknown((NAMESPACE, CLAIM))
        if error is not None:
            raise error
        if self._mirror.get(ObjectId(NAMESPACE, "", self._desired.namespace_of(key.gvc))) is None:
            # What controllers make names no instance: in a namespace of another one it is not ours.
            return ""
        claims = self.snapshots.claims_of(key)
        waits = await self._secure_all(key, claims) if final else ""
        if waits:
            return waits
        left = await self._delete_snapshots(key)
        await self._delete_all(claims)
        return "the volumes end" if claims or left else ""

    async def replace_claims(self, key: Key, spec: VolumeSetSpecification, *, final: bool) -> str:
        """Delete the claims that are not of the class that ``spec`` has; what it waits for, "" if nothing.

        The workload goes with them, so that it makes none of them anew, and is back with the next run. Repeated, it
        deletes no claim of the new class. Raises EngineError, as ``delete_claims`` does.
        """
        error = self._mirror.explain_unknown((CLAIM, STATEFUL_SET))
        if error is not None:
            raise error
        storage_class = storage_class_of(spec)
        claims = [
            item
            for item in self.snapshots.claims_of(key)
            if read_text(item.decode(), "spec", "storageClassName") != storage_class
        ]
        waits = await self._secure_all(key, claims) if final else ""
        if waits or not claims:
            return waits
        workload = self.find_user(key)
        if workload is not None:
            namespace = self._desired.namespace_of(key.gvc)
            await self._api.delete(ObjectId(STATEFUL_SET, namespace, workload_name(workload.name)))
        await self._delete_snapshots(key)
        await self._delete_all(claims)
        return "the volumes that are replaced end"

    async def _delete_snapshots(self, key: Key) -> bool:
        """Delete the snapshots of a volume set that are not final ones; whether some are left."""
        others = [live for live in self.snapshots.list(key) if live.ours and not live.final]
        gone = [live for live in others if live.phase is not SnapshotPhase.ENDING]
        await self.snapshots.delete(self._desired.namespace_of(key.gvc), gone)
        return bool(others)

    async def _delete_all(self, claims: Sequence[MirroredObject]) -> None:
        for claim in claims:
            if not claim.ending:
                await self.replaced.release(claim.decode())
                await self._api.delete(claim.id, uid=claim.uid)

    async def _secure_all(self, key: Key, claims: Sequence[MirroredObject]) -> str:
        """Take final snapshots of claims, if the cluster has any; what it waits for, "" once they can be restored."""
        if not self._desired.features.snapshots:
            return ""
        waits = [await self._secure(key, claim) for claim in claims if _has_data(claim)]
        return next(filter(None, waits), "")

    async def _secure(self, key: Key, claim: MirroredObject) -> str:
        """Take the final snapshot of a claim; what it waits for, "" once it can be restored. Raises EngineError."""
        live = next((live for live in self.snapshots.list(key) if live.final == claim.uid), None)
        if live is None:
            content = claim.decode()
            name = f"{read_index(content)}-{compact_time(format_iso_time(self._context.clock.now()))}"
            live = await self.snapshots.create(content, SnapshotRequest(name, marks={FINAL: claim.uid}))
        if live.phase is SnapshotPhase.READY:
            return ""
        way_out = "to delete it without one, bring the volume set back with createFinalSnapshot: false, and remove it"
        if live.phase is SnapshotPhase.FAILED:
            message = f"the final snapshot of {claim.id.name} fails: {live.message}; {way_out}"
            raise EngineError(message, reason=Reason.SNAPSHOT_FAILED)
        hint = f", which no snapshot controller has begun; {way_out}" if live.phase is SnapshotPhase.NEW else ""
        return f"the final snapshot {live.object_name} is taken{hint}"

    def _require_record(self, key: Key) -> Record:
        record = self._claims.record(key)
        if record is None:
            raise EngineError(f"there is no {key} at {self._context.location}", reason=Reason.NOT_FOUND, retry=False)
        return record

    def _claim_id(self, key: Key, record: Record, index: int) -> ObjectId:
        """The claim of a volume; one may be absent that a replica wants. Raises EngineError, reason VolumeNotFound."""
        state = read_volumes(record.state) or VolumeSetState(self._context.location)
        user = state.used_by_workload.rpartition("/")[2]
        target = ObjectId(CLAIM, self._desired.namespace_of(key.gvc), claim_name(key.name, user, index))
        claims = [item.id for item in self.snapshots.claims_of(key) if read_index(item.decode()) == index]
        wanted = any((volume.index, volume.lifecycle) == (index, VolumeLifecycle.BOUND) for volume in state.volumes)
        if target in claims or (user and wanted and not claims):
            return target
        if len(claims) != 1:
            indexes = (read_index(item.decode()) for item in self.snapshots.claims_of(key))
            there = ", ".join(map(str, sorted(index for index in indexes if index is not None))) or "none"
            message = f"there is no volume {index} at {self._context.location}; there are: {there}"
            raise make_rejection(message, Reason.VOLUME_NOT_FOUND)
        return claims[0]

    async def _expand(self, target: ObjectId, index: int, size: float) -> None:
        claim = await self._require_object(target)
        if read_requested_size(claim) >= size:
            raise make_rejection(
                f"volume {index} has {read_requested_size(claim):g} GB; newStorageCapacity must be larger"
            )
        await self.resize(target, size)

    async def resize(self, target: ObjectId, size: float) -> None:
        """Let a claim have ``size`` GB. Raises EngineError, also if its class does not allow that."""
        await check_growth(self._api, target, await self._require_object(target))
        await self._api.patch(target, {"spec": {"resources": {"requests": {"storage": f"{size:g}Gi"}}}})

    async def _create_snapshot(self, key: Key, target: ObjectId, ask: CreateVolumeSnapshot, command_id: str) -> None:
        self._require_snapshots()
        name = ask.snapshot_name
        request = SnapshotRequest(name, ask.snapshot_expiration_date, ask.tags, {COMMAND: command_id})
        # One of an earlier claim of the volume has the name too, and an object with another name.
        names = {(one.index, one.snapshot.name): one.object_name for one in self.snapshots.list(key)}
        there = names.get((ask.volume_index, name), snapshot_name(target.name, name))
        live = None
        if there == snapshot_name(target.name, name):
            live = await self.snapshots.create(await self._require_object(target), request)
        if live is None or live.command != command_id:
            message = f"volume {ask.volume_index} has a snapshot {name} already"
            raise make_rejection(message, Reason.SNAPSHOT_EXISTS)

    def _require_snapshots(self) -> None:
        if not self._desired.features.snapshots:
            message = f"the cluster of {self._context.location} serves no VolumeSnapshot; install a snapshot controller"
            raise EngineError(message, reason=Reason.KIND_NOT_SERVED, retry=False)

    def _find_snapshot(self, key: Key, index: int, name: str) -> LiveSnapshot:
        self._require_snapshots()
        for live in self.snapshots.list(key):
            if (live.index, live.snapshot.name, live.final) == (index, name, ""):
                return live
        raise make_rejection(f"volume {index} has no snapshot {name}", Reason.SNAPSHOT_NOT_FOUND)

    async def _delete_volume(self, key: Key, target: ObjectId) -> None:
        claim = await self._api.get(target)
        if claim is not None:
            await self.replaced.release(claim)
        await self._replace_claim(key, target, None)

    async def _replace_claim(self, key: Key, target: ObjectId, snapshot: LiveSnapshot | None, volume: str = "") -> None:
        """Put a new claim in the place of one: empty, or with the data of ``snapshot``.

        The StatefulSet would create an empty one by itself, so it is away meanwhile; its pods stay. A claim that is
        missing already was deleted by this command before a crash. ``volume`` is its PersistentVolume, if that is
        retained: it gets a claim as before if the new one is refused.
        """
        workload = self.find_user(key)
        claim = await self._api.get(target)
        uid = claim["metadata"]["uid"] if claim is not None else ""
        former = self._make_claim(target, claim, workload, None)
        fresh = self._make_claim(target, claim, workload, snapshot)
        if volume:
            fresh["metadata"]["annotations"][REPLACES] = volume
            await self.replaced.try_claim(fresh, target)
        with self.away(workload):
            await self.take_away(target, uid, workload)
            try:
                if snapshot is not None or workload is not None:
                    await self._create_claim(target, fresh, uid)
            except EngineError:
                if volume:
                    # Without it, the StatefulSet would make an empty claim, so then it stays away.
                    await self.replaced.put_back(target, former, volume)
                await self.bring_back(workload)
                raise
            await self.bring_back(workload)

    async def take_away(self, target: ObjectId, uid: str, workload: Key | None) -> None:
        """Delete a claim, if it has a ``uid``, with its pod; the StatefulSet goes before, and would make it anew."""
        if workload is not None:
            await self._applier.make_room(ObjectId(STATEFUL_SET, target.namespace, workload_name(workload.name)))
        if uid:
            await self._api.delete(target, uid=uid)
        if workload is not None:
            index = target.name.rpartition("-")[2]
            await self._api.delete(ObjectId(POD, target.namespace, f"{workload_name(workload.name)}-{index}"))

    async def bring_back(self, workload: Key | None) -> None:
        """Let a workload run that was away. Raises EngineError."""
        if workload is not None:
            await self._run_again(self._require_record(workload))

    def _make_claim(
        self, target: ObjectId, claim: KubeObject | None, workload: Key | None, snapshot: LiveSnapshot | None
    ) -> KubeObject:
        """What takes the place of ``claim``, or of one that is gone, by the template of its workload."""
        fresh = without_server_fields(claim) if claim is not None else self._render_claim(target, workload)
        fresh["spec"].pop("dataSource", None)
        if snapshot is None:
            return fresh
        fresh["spec"]["dataSource"] = {
            "apiGroup": VOLUME_SNAPSHOT.group,
            "kind": VOLUME_SNAPSHOT.kind,
            "name": snapshot.object_name,
        }
        if read_requested_size(fresh) < snapshot.snapshot.size:
            fresh["spec"]["resources"]["requests"]["storage"] = f"{snapshot.snapshot.size:g}Gi"
        return fresh

    def _render_claim(self, target: ObjectId, workload: Key | None) -> KubeObject:
        """A claim as the StatefulSet of ``workload`` would make it. Raises EngineError."""
        record = self._require_record(workload) if workload is not None else None
        for template in self._desired.render_claims(record) if record is not None else ():
            if target.name.startswith(f"{template['metadata']['name']}-"):
                metadata = {**template["metadata"], "name": target.name, "namespace": target.namespace}
                return {**template, "metadata": metadata}
        raise EngineError(f"there is no {target}", reason=Reason.VOLUME_NOT_FOUND, retry=False)

    @contextmanager
    def away(self, workload: Key | None) -> Iterator[None]:
        """A workload is missing for the block, and that is no drift."""
        self.replacing.update({workload} if workload is not None else ())
        try:
            yield
        finally:
            self.replacing.discard(workload)

    async def _create_claim(self, target: ObjectId, fresh: KubeObject, former: str) -> None:
        """Create ``fresh`` once the claim with the uid ``former`` has ended. Raises EngineError if another is there."""
        if await self.await_end(target, former):
            await self.replaced.create(fresh, target)
        elif "dataSource" in fresh["spec"]:
            message = f"{target} was made meanwhile without the data of the snapshot; restore it again"
            raise EngineError(message, reason=Reason.CLUSTER_BUSY)

    async def await_end(self, target: ObjectId, uid: str) -> bool:
        """Return once the claim with ``uid`` has ended; whether its name is free. Raises EngineError."""
        for _ in range(MOST_TRIES):
            there = await self._api.get(target)
            if there is None or there["metadata"]["uid"] != uid:
                return there is None
            await self._context.clock.sleep(1.0)
        raise EngineError(f"{target} does not end; look for its finalizers", reason=Reason.TERMINATING)

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


def _has_data(claim: MirroredObject) -> bool:
    """Whether a claim has a volume of which a snapshot can be taken."""
    return not claim.ending and read_text(claim.decode(), "status", "phase") == "Bound"


def read_requested_size(claim: Mapping[str, Any]) -> float:
    """The requested size of a claim, in GB."""
    return parse_quantity(read_field(claim, "spec", "resources", "requests", "storage")) / GIB
