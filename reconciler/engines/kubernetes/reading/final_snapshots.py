"""The final snapshots of deleted volumes on a cluster: VolumeSnapshots that only `delete-final-snapshot` deletes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import is_absent
from reconciler.engines.kubernetes.client.objects import VOLUME_SNAPSHOT, ObjectId
from reconciler.engines.kubernetes.reading.pods import ClusterLocation
from reconciler.engines.kubernetes.rendering.names import KEY
from reconciler.engines.kubernetes.status.fields import ObjectPart, read_text
from reconciler.engines.kubernetes.status.snapshots import LiveSnapshot, SnapshotPhase, read_snapshot
from reconciler.engines.volumes import VolumeSnapshot
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind


class _FinalObject(NamedTuple):
    """The VolumeSnapshot of a volume of ``key`` that was deleted."""

    key: Key
    namespace: str
    live: LiveSnapshot


async def list_final_snapshots(api: KubeApi, location: ClusterLocation) -> list[VolumeSnapshot]:
    """Those that can be restored, by volume set and name; none where the kind is not served. Raises EngineError."""
    finals = [
        VolumeSnapshot(key, location.name, live.index or 0, live.snapshot)
        for key, _, live in await _list_finals(api, location)
        if live.phase is SnapshotPhase.READY
    ]
    return sorted(finals, key=lambda final: (final.key, final.snapshot.name))


async def delete_final_snapshot(api: KubeApi, location: ClusterLocation, snapshot: VolumeSnapshot) -> None:
    """Delete one. Raises EngineError."""
    for key, namespace, live in await _list_finals(api, location):
        if (key, live.index, live.snapshot.name) == (snapshot.key, snapshot.index, snapshot.snapshot.name):
            await api.delete(ObjectId(VOLUME_SNAPSHOT, namespace, live.object_name), uid=live.uid)


async def _list_finals(api: KubeApi, location: ClusterLocation) -> list[_FinalObject]:
    try:
        page = await api.list(VOLUME_SNAPSHOT, location.selector)
    except EngineError as error:
        if is_absent(error):
            return []
        raise
    parts = [msgspec.json.decode(item, type=dict[str, object]) for item in page.items]
    return list(_select_finals(parts, location))


def _select_finals(parts: list[dict[str, object]], location: ClusterLocation) -> Iterator[_FinalObject]:
    for part in parts:
        live, key = read_snapshot(part), _read_key(part)
        namespace = read_text(part, "metadata", "namespace")
        if live.final and key is not None and namespace == location.namespace_of(key.gvc):
            yield _FinalObject(key, namespace, live)


def _read_key(part: ObjectPart) -> Key | None:
    try:
        key = Key.parse(read_text(part, "metadata", "annotations", KEY))
    except ValueError:
        return None
    return key if key.kind is Kind.VOLUMESET else None
