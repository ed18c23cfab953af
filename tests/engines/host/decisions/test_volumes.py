"""What the volumes of volume sets are and need: a case for each rule of docs/platform/volumeset.md."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.engines.host.decisions.volumes import existing_volumes, list_limitations
from reconciler.engines.host.volumes.layout import GIB, VolumeState
from reconciler.engines.host.volumes.protocol import StoredVolume
from reconciler.engines.volumes import (
    ReplicaVolume,
    Snapshot,
    VolumeLifecycle,
    VolumeSetState,
    bind_volumes,
    data_in_words,
)
from tests.support.cases import cases


def test_growth_that_stops_a_replica_is_a_limitation_and_in_the_status() -> None:
    ready = StoredVolume(0, "image-ext4", "ext4", 10, VolumeState.READY, enforced=True, freezes=True)
    offline = msgspec.structs.replace(ready, grows_detached=True)
    sentence = (
        "Volumes that are images with ext4 grow in use only with CAP_SYS_RESOURCE: their replica stops meanwhile."
    )
    assert [sentence in list_limitations([each]) for each in (ready, offline)] == [False, True]
    found = [existing_volumes(VolumeSetState("here"), [each], {}).volumes[0] for each in (ready, offline)]
    assert [each.grows_detached for each in found] == [msgspec.UNSET, True]


def stored(index: int, capacity: float = 10, state: str = "ready", used: int = 0, lost: bool = False) -> StoredVolume:
    return StoredVolume(index, "directory", "", capacity, VolumeState(state), lost=lost)


@pytest.mark.parametrize("case", cases("host/volumes.yaml"))
def test_the_volumes_of_the_status_are_those_that_exist(case: dict[str, Any]) -> None:
    before = tuple(
        ReplicaVolume(value["index"], VolumeLifecycle(value["lifecycle"]), value["currentSize"])
        for value in case.get("claimed", ())
    )
    claimed = bind_volumes(VolumeSetState("here", before), case.get("workload", "db"), case.get("bound", 0), 10)
    there = case.get("stored", [])
    used = {value["index"]: value.get("used", 0) for value in there}
    found = existing_volumes(claimed, [stored(**value) for value in there], used).volumes
    lines = [f"{volume.index} {volume.lifecycle} {volume.current_size:g}" for volume in found]
    uses = [f" used {volume.current_bytes_used}" if volume.current_bytes_used else "" for volume in found]
    assert [line + use for line, use in zip(lines, uses, strict=True)] == case["volumes"]


def test_what_an_approval_would_delete_in_words() -> None:
    snapshots = tuple(Snapshot(name, f"2026-01-0{name}T00:00:00Z", 10) for name in "21")
    volumes = (
        ReplicaVolume(0, VolumeLifecycle.BOUND, 10, GIB * 3 // 2, snapshots),
        ReplicaVolume(1, VolumeLifecycle.UNBOUND, 10, 4096),
        ReplicaVolume(2, VolumeLifecycle.DELETED, 0, 0, snapshots),
        ReplicaVolume(3, VolumeLifecycle.UNBOUND, 10),
    )
    assert data_in_words(VolumeSetState("here", volumes)) == (
        "volume 0 with 1.5 GiB used, newest snapshot of 2026-01-02T00:00:00Z; volume 1 with 4.0 KiB used, no snapshot; "
        "volume 3 with 0 bytes used, no snapshot"
    )
