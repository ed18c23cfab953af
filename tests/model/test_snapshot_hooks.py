"""The commands in the tags of a workload around snapshots."""

from __future__ import annotations

import json

import pytest

from reconciler.model.snapshot_hooks import SnapshotHooks, parse_hook, read_snapshot_hooks


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("", ()),
        (" ", ()),
        ("[]", ()),
        ('["psql", "-c", "checkpoint"]', ("psql", "-c", "checkpoint")),
        ("psql -c checkpoint", ("/bin/sh", "-c", "psql -c checkpoint")),
        ("[ -e /data/busy ] && exit 1", ("/bin/sh", "-c", "[ -e /data/busy ] && exit 1")),
        ("[1]", ("/bin/sh", "-c", "[1]")),
    ],
)
def test_a_list_is_a_program_and_other_text_is_for_a_shell(text: str, command: tuple[str, ...]) -> None:
    assert parse_hook(text) == command


def test_hooks_run_in_the_container_that_mounts_the_volume() -> None:
    containers = [
        {"name": "proxy"},
        {"name": "db", "volumes": [{"uri": "platform://volumeset/data", "path": "/data"}]},
    ]
    body = {"tags": {"reconciler/pre-snapshot": "sync"}, "spec": {"type": "stateful", "containers": containers}}
    found = read_snapshot_hooks(json.dumps(body).encode(), "data")
    assert found == SnapshotHooks("db", ("/bin/sh", "-c", "sync"), ())
    assert read_snapshot_hooks(json.dumps(body).encode(), "other") == SnapshotHooks()
    assert read_snapshot_hooks(b"", "data") == SnapshotHooks()
