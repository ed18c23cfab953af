"""Snapshots before a release: of the volumes of a workload, before the first replica of a new version starts.

Every engine takes them for workloads with the tag `reconciler/snapshot-on: new-version`, in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from reconciler.engines.volumes import ReplicaVolume, Snapshot, VolumeLifecycle, VolumeSetState, add_snapshot
from reconciler.model.key import Key, Kind
from reconciler.model.platform import NEW_VERSION, SNAPSHOT_ON

KEEP = 10
"""The number of such snapshots of a volume that stay when another is taken: each may take as much of the disk as the
volume. A rollback restores one of these, since it is such a release itself."""

_WORKLOAD, _VERSION, _COMMIT = "reconciler/workload", "reconciler/version", "reconciler/commit"


class _Tagged(msgspec.Struct):
    tags: dict[str, Any] = {}


def wants_snapshots(body: bytes) -> bool:
    """Whether the workload with this ``body`` (in normal form) wants a snapshot before each new version."""
    return SNAPSHOT_ON.encode() in body and msgspec.json.decode(body, type=_Tagged).tags.get(SNAPSHOT_ON) == NEW_VERSION


def snapshot_before(key: Key, version: int, revision: str, created: str, expires: str = "") -> Snapshot:
    """The snapshot to take of each volume before ``version`` of the workload ``key`` starts; its size is not known.

    Its name is that of the version, so that a repeated attempt finds it. ``revision`` is the one with the new version.
    """
    commit = revision.rpartition(":")[2]
    tags = {SNAPSHOT_ON: NEW_VERSION, _WORKLOAD: key.name, _VERSION: str(version), _COMMIT: commit}
    return Snapshot(f"before-{key.name}-{version:05d}", created, 0, expires, tags)


def workload_of(snapshot: Snapshot, volumeset: Key) -> Key | None:
    """The workload before whose new version ``snapshot`` was taken; None if it has another purpose."""
    if snapshot.tags.get(SNAPSHOT_ON) != NEW_VERSION or _WORKLOAD not in snapshot.tags:
        return None
    return Key(Kind.WORKLOAD, volumeset.gvc, snapshot.tags[_WORKLOAD])


def version_of(snapshot: Snapshot) -> int:
    """The version before which ``snapshot`` was taken."""
    return _parse_version_number(snapshot.tags)


def commit_of(snapshot: Snapshot) -> str:
    """The commit with the version before which ``snapshot`` was taken."""
    return snapshot.tags.get(_COMMIT, "")


def list_outdated_snapshots(tags: Mapping[str, Mapping[str, str]], workload: str) -> list[str]:
    """The names of snapshots before versions of ``workload`` but the newest KEEP; ``tags`` are those of a volume."""
    texts = [
        name
        for name, snapshot_tags in tags.items()
        if snapshot_tags.get(SNAPSHOT_ON) == NEW_VERSION and snapshot_tags.get(_WORKLOAD) == workload
    ]
    return sorted(texts, key=lambda name: _parse_version_number(tags[name]))[:-KEEP]


def with_snapshot(state: VolumeSetState, snapshot: Snapshot) -> VolumeSetState:
    """``state`` with ``snapshot`` of every volume in use that has none of its name, and without outdated ones."""
    return msgspec.structs.replace(
        state, volumes=tuple(_add_release_snapshot(volume, snapshot) for volume in state.volumes)
    )


def _add_release_snapshot(volume: ReplicaVolume, snapshot: Snapshot) -> ReplicaVolume:
    snapshot_tags = {volume_snapshot.name: volume_snapshot.tags for volume_snapshot in volume.volume_snapshots}
    if volume.lifecycle is not VolumeLifecycle.BOUND or snapshot.name in snapshot_tags:
        return volume
    gone = list_outdated_snapshots(snapshot_tags, snapshot.tags[_WORKLOAD])
    taken = add_snapshot(volume, snapshot)
    remaining = tuple(volume_snapshot for volume_snapshot in taken.volume_snapshots if volume_snapshot.name not in gone)
    return msgspec.structs.replace(taken, volume_snapshots=remaining)


def _parse_version_number(tags: Mapping[str, str]) -> int:
    text = tags.get(_VERSION, "")
    return int(text) if text.isdecimal() else 0
