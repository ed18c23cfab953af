"""`reconciler snapshots`: the snapshots of volumes, as recorded."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.volumes.protocol import VolumeSpec
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.volumes import VolumeId
from reconciler.model.key import Key, Kind
from reconciler.records.store import FILE, Records
from reconciler.times import format_iso_time
from tests.support.clock import FakeClock
from tests.support.command_sandbox import SETTINGS, CommandResult, golden, here
from tests.support.records import record

DAY = 86_400.0


def volume(index: int, *snapshots: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "lifecycle": "bound", "currentSize": 10, "volumeSnapshots": snapshots}


def shop(path: Path) -> None:
    """A shop with snapshots of two volume sets, one with a hostile name, and a set without any."""
    now = time.time()
    old = {
        "name": "old",
        "created": format_iso_time(now - 3.5 * DAY),
        "size": 10.0,
        "expires": format_iso_time(now + 2.5 * DAY),
    }
    new = {"name": "new", "created": format_iso_time(now - 100), "size": 12.5, "tags": {"team": "shop", "env": "prod"}}
    due = {"name": "due\n\x1b[2J", "created": "no time", "size": 1.0, "expires": format_iso_time(now - 1)}
    states = {
        ("data", "here"): [volume(0, old, new), volume(1, due)],
        ("data", "there"): [],
        ("other", "here"): [volume(0, new)],
    }
    (path / "settings.yaml").write_text(SETTINGS)
    with closing(Records.open(path / "state" / FILE)) as records:
        for (name, place), volumes in states.items():
            state = json.dumps({"name": place, "volumes": volumes}).encode()
            records.applied.put_many([record(f"volumeset/shop/{name}", {}, place, state=state)])
        assert len(records.applied.get(Key(Kind.VOLUMESET, "shop", "data"))) == 2


def run(path: Path, *words: str) -> CommandResult:
    return here("snapshots", *words, cwd=path)


def test_snapshots_are_listed_from_the_newest(tmp_path: Path) -> None:
    shop(tmp_path)
    golden("snapshots.txt", f"$ reconciler snapshots volumeset/shop/data\n{run(tmp_path, 'volumeset/shop/data').out}")
    everything = json.loads(run(tmp_path, "-o", "json").out)["items"]
    assert [(each["key"], each["volumeIndex"], each["name"]) for each in everything] == [
        ("volumeset/shop/data", 0, "new"),
        ("volumeset/shop/data", 0, "old"),
        ("volumeset/shop/data", 1, "due\n\x1b[2J"),
        ("volumeset/shop/other", 0, "new"),
    ]
    assert everything[0] | {"created": ""} == {
        "key": "volumeset/shop/data",
        "location": "here",
        "volumeIndex": 0,
        "name": "new",
        "created": "",
        "size": 12.5,
        "expires": None,
        "tags": {"team": "shop", "env": "prod"},
    }


def test_final_snapshots_of_deleted_volumes_are_listed(tmp_path: Path) -> None:
    shop(tmp_path)
    store = VolumeStore(tmp_path / "state" / "host" / "here", "directory", FakeClock(time.time() - 2.5 * DAY))
    store.open()
    gone = Key(Kind.VOLUMESET, "shop", "gone")
    attached = store.attach(VolumeId(gone, 1), VolumeSpec(20.0), "db-1", Owner())
    (attached / "file").write_text("data")
    store.detach(VolumeId(gone, 1), "db-1")
    store.drop(gone, keep_final_snapshot=True)
    [listed] = json.loads(run(tmp_path, "--deleted", "-o", "json").out)["items"]
    assert (listed["key"], listed["location"], listed["volumeIndex"]) == ("volumeset/shop/gone", "here", 1)
    table = run(tmp_path, "volumeset/shop/gone", "--deleted").out
    line = f"volumeset/shop/gone here 1 {listed['name']} 2d 20 GB never never -"
    assert table.splitlines()[1].split() == line.split()
    assert run(tmp_path, "volumeset/shop/data", "--deleted").err == "there are no snapshots\n"
    assert delete(tmp_path, "1-2000", "--yes").err.endswith("see: reconciler snapshots volumeset/shop/gone --deleted\n")
    shown = f"the final snapshot {listed['name']} of volume 1 of volumeset/shop/gone at here is deleted"
    assert delete(tmp_path, listed["name"]).err == (
        f"error: {shown}, and with it the last copy of the data on this host; to do it, add --yes\n"
    )
    assert run(tmp_path, "--deleted").out
    assert delete(tmp_path, listed["name"], "--yes").out == f"{shown}\n"
    assert run(tmp_path, "--deleted").out == ""
    assert "FinalSnapshotDeleted" in here("events", "volumeset/shop/gone", cwd=tmp_path).out


def delete(path: Path, *words: str) -> CommandResult:
    return here("volume", "delete-final-snapshot", "volumeset/shop/gone", *words, cwd=path)


def test_only_volume_sets_that_exist_have_snapshots(tmp_path: Path) -> None:
    shop(tmp_path)
    for words, message in (
        ("workload/shop/api", "workload/shop/api is no volume set; only volume sets have snapshots"),
        (
            "volumeset/shop/date",
            "there is no volumeset/shop/date, neither in Git nor in the records; did you mean volumeset/shop/data?",
        ),
    ):
        refused = run(tmp_path, words)
        assert (refused.code, refused.err) == (1, f"error: {message}\n")


def test_commands_on_final_snapshots_read_well(tmp_path: Path) -> None:
    shop(tmp_path)
    lines = (
        ["delete-final-snapshot", "volumeset/shop/gone", "nightly"],
        ["delete-final-snapshot", "volumeset/shop/gone", "nightly", "--yes"],
        ["import", "volumeset/shop/data", "nightly"],
    )
    results = ((words, here("volume", *words, cwd=tmp_path)) for words in lines)
    golden(
        "volume.txt", "".join(f"$ reconciler volume {' '.join(words)}\n{each.out}{each.err}" for words, each in results)
    )
