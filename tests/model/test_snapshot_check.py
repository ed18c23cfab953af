"""The check of snapshots in the tags of a workload."""

from __future__ import annotations

import json

from reconciler.model.snapshot_check import DAILY, SnapshotCheck, read_snapshot_check, schedule_fault


def read(volumeset: str = "data", **tags: str) -> SnapshotCheck:
    """The check of a workload with these tags."""
    containers = [
        {"name": "proxy"},
        {"name": "db", "volumes": [{"uri": "platform://volumeset/data", "path": "/data"}]},
    ]
    named = {f"reconciler/{name.replace('_', '-')}": text for name, text in tags.items()}
    body = {"tags": named, "spec": {"type": "stateful", "containers": containers}}
    return read_snapshot_check(json.dumps(body).encode(), volumeset)


def test_a_check_runs_in_the_container_that_mounts_the_volume() -> None:
    command = ("/bin/sh", "-c", "test -s /data/db")
    assert read(verify_snapshot=command[2]) == SnapshotCheck("db", command, DAILY)
    assert read(verify_snapshot='["ok"]', verify_schedule="0 4 * * 0") == SnapshotCheck("db", ("ok",), "0 4 * * 0")


def test_without_a_command_or_a_volume_there_is_no_check() -> None:
    assert read() == read(verify_schedule="0 4 * * 0") == SnapshotCheck("db")
    assert read("other", verify_snapshot="true") == SnapshotCheck()
    assert read_snapshot_check(b"", "data") == SnapshotCheck()


def test_a_wrong_schedule_is_daily() -> None:
    assert read(verify_snapshot="true", verify_schedule="often").schedule == DAILY
    assert schedule_fault("often")
    assert not schedule_fault("0 4 * * 0")
