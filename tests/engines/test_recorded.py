"""The recorded engine: deployments, GVCs and volume sets when nothing runs and all is healthy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.engines.volumes import read_volumes
from reconciler.engines.workload.names import make_alias
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.record import Health
from reconciler.model.resource import Reference
from reconciler.planning.plan import Action, Step
from reconciler.records.tables.desired import DesiredEntry
from tests.engines.contract import replicas_in
from tests.support.clock import FakeClock
from tests.support.plans import ExecutorHarness, ends, plan, step

WEST, EAST = "aws-us-west-2", "gcp-us-east1"
ALIAS = make_alias("acme", "shop")


class RecordedHarness(ExecutorHarness):
    """Recorded engines at two locations, and the GVC ``shop``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, FakeClock(auto=True))
        self.time: FakeClock = self.clock  # type: ignore[assignment]
        for location in ("", WEST, EAST):
            self.engines[location] = RecordedEngine(self.records, location, "acme", "example.net", self.clock)
        self.apply(recorded_step("gvc/shop", ""))

    def apply(self, *steps: Step) -> None:
        """Perform and record; everything must be applied."""
        assert set(ends(asyncio.run(self.run(plan(*steps)))).values()) <= {"applied"}

    def state(self, key: str, location: str = WEST) -> dict[str, Any]:
        """The recorded state."""
        found: dict[str, Any] = json.loads(self.record(key, location).state)
        return found

    def record(self, key: str, location: str = WEST) -> Any:
        """The record at ``location``."""
        return next(record for record in self.records.applied.get(key) if record.location == location)

    def command(self, key: str, name: str, location: str = WEST, **spec: Any) -> dict[str, Any]:
        """Give a command to the engine at ``location``."""
        ask = {"location": location, **spec}
        return asyncio.run(self.engines[location].command(Key.parse(key), name, ask))


@pytest.fixture
def harness(tmp_path: Path) -> RecordedHarness:
    return RecordedHarness(tmp_path)


def recorded_step(key: str, location: str = WEST, **more: Any) -> Step:
    return step(key, location, engine="recorded", **more)


def workload(name: str, kind: str = "standard", *, location: str = WEST, **more: Any) -> Step:
    """A step on a workload with two replicas; ``spec`` overrides members of its spec."""
    container: dict[str, Any] = {"name": "main", "image": "app:1", "cpu": "100m", "memory": "256Mi"}
    container |= {"ports": [{"number": 8080, "protocol": "http"}]} if kind != "cron" else {}
    container |= {
        "volumes": [{"uri": f"platform://volumeset/{uri}", "path": f"/{uri}"} for uri in more.pop("mounts", ())]
    }
    spec = {
        "type": kind,
        "containers": [container],
        "defaultOptions": {"autoscaling": {"minScale": 2, "maxScale": 5}, "suspend": False},
        "localOptions": [],
    }
    spec |= {"job": {"schedule": "* * * * *", "historyLimit": 3}} if kind == "cron" else {}
    body = {"kind": "workload", "name": name, "gvc": "shop", "spec": spec | more.pop("spec", {})}
    return recorded_step(f"workload/shop/{name}", location, body=body, **more)


def scaled(least: int, **more: Any) -> dict[str, Any]:
    return {"defaultOptions": {"autoscaling": {"minScale": least, "maxScale": 9}, **more}}


def volumeset(name: str = "disk", capacity: int = 10, **more: Any) -> Step:
    spec = {"initialCapacity": capacity, "performanceClass": "general-purpose-ssd", "fileSystemType": "ext4"}
    return recorded_step(f"volumeset/shop/{name}", body={"kind": "volumeset", "name": name, "spec": spec}, **more)


def test_a_gvc_gets_an_alias_of_thirteen_letters_and_digits_and_keeps_it(harness: RecordedHarness) -> None:
    alias = harness.record("gvc/shop", "").alias
    assert alias == ALIAS
    assert len(alias) == 13
    assert alias.isalnum()
    assert alias == alias.lower()
    assert make_alias("acme", "shop2") != alias
    recorded = msgspec.structs.replace(harness.record("gvc/shop", ""), alias="abcdefghijklm")
    harness.records.applied.put(recorded)
    harness.apply(recorded_step("gvc/shop", "", action=Action.UPDATE, version=2))
    assert harness.record("gvc/shop", "").alias == "abcdefghijklm"


def test_a_deployment_is_recorded_in_full(harness: RecordedHarness) -> None:
    harness.apply(workload("api"))
    state = harness.state("workload/shop/api")
    assert state == {
        "name": WEST,
        "status": {
            "endpoint": f"api-{ALIAS}.{WEST}.example.net",
            "ready": False,
            "deploying": False,
            "lastProcessedVersion": 1,
            "expectedDeploymentVersion": 1,
            "message": "recorded only: nothing runs at this location",
            "versions": [
                {
                    "name": "api-00001",
                    "created": "2026-01-01T00:00:00Z",
                    "workload": 1,
                    "gvc": 1,
                    "ready": False,
                    "message": "",
                    "containers": {
                        "main": {
                            "name": "main",
                            "image": "app:1",
                            "ready": False,
                            "message": "",
                            "resources": {"replicas": 2, "replicasReady": 0, "cpu": "100m", "memory": "256Mi"},
                            "restarts": {"count": 0},
                        }
                    },
                }
            ],
            "jobExecutions": [],
        },
        "workload": {
            "canonicalEndpoint": f"api-{ALIAS}.example.net",
            "endpoint": f"api-{ALIAS}.example.net",
            "internalName": "api.shop.platform.local",
            "replicaInternalNames": [],
            "health": "Recorded",
            "currentReplicaCount": 0,
            "domainEndpoints": [],
        },
    }


def test_a_change_of_scale_keeps_the_version_and_when_it_was_made(harness: RecordedHarness) -> None:
    harness.apply(workload("api"))
    harness.time._passed += 60
    harness.apply(workload("api", action=Action.UPDATE, spec=scaled(4)))
    (version,) = harness.state("workload/shop/api")["status"]["versions"]
    assert (version["workload"], version["created"]) == (1, "2026-01-01T00:00:00Z")
    assert version["containers"]["main"]["resources"]["replicas"] == 4
    harness.apply(workload("api", action=Action.UPDATE, version=2))
    (version,) = harness.state("workload/shop/api")["status"]["versions"]
    assert (version["workload"], version["created"]) == (2, "2026-01-01T00:01:00Z")


def test_options_of_a_location_replace_the_default_ones_whole_and_there_only(harness: RecordedHarness) -> None:
    own = {"location": f"/org/acme/location/{EAST}", "timeoutSeconds": 9}
    options = {**scaled(3, suspend=True), "localOptions": [own]}
    harness.apply(workload("api", spec=options), workload("api", location=EAST, spec=options))
    counts = [replicas_in(harness.record("workload/shop/api", place).state) for place in (WEST, EAST)]
    assert counts == [0, 1]


def test_a_suspended_workload_has_no_replicas_and_none_is_missing(harness: RecordedHarness) -> None:
    harness.apply(workload("api", spec=scaled(3, suspend=True)))
    assert harness.state("workload/shop/api")["status"]["ready"]
    assert harness.record("workload/shop/api").health is Health.RECORDED


def test_stateful_replicas_have_names_of_their_own(harness: RecordedHarness) -> None:
    harness.apply(workload("db", "stateful"))
    assert harness.state("workload/shop/db")["workload"]["replicaInternalNames"] == ["db-0.db", "db-1.db"]


def test_a_workload_placed_nowhere_is_recorded_with_unknown_health(harness: RecordedHarness) -> None:
    harness.apply(workload("api", location=""))
    assert harness.record("workload/shop/api", "").health is Health.UNKNOWN
    harness.apply(workload("api"))
    assert [record.location for record in harness.records.applied.get("workload/shop/api")] == [WEST]


def volumes(harness: RecordedHarness, name: str = "disk") -> list[tuple[int, str, float]]:
    state = harness.state(f"volumeset/shop/{name}")
    return [(volume["index"], volume["lifecycle"], volume["currentSize"]) for volume in state["volumes"]]


def test_every_replica_gets_its_own_volume(harness: RecordedHarness) -> None:
    harness.apply(volumeset())
    assert harness.state("volumeset/shop/disk") == {"name": WEST, "volumes": [], "usedByWorkload": ""}
    harness.records.status_queue.clear("main", ["volumeset/shop/disk"], 1 << 40)
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    assert volumes(harness) == [(0, "bound", 10), (1, "bound", 10)]
    assert harness.state("volumeset/shop/disk")["usedByWorkload"] == "/org/acme/gvc/shop/workload/db"
    assert "volumeset/shop/disk" in harness.records.status_queue.take("main").keys


def test_volumes_outlive_their_replicas_and_their_workload(harness: RecordedHarness) -> None:
    harness.apply(volumeset())
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    harness.apply(workload("db", "stateful", mounts=["disk"], action=Action.UPDATE, spec=scaled(1)))
    assert volumes(harness) == [(0, "bound", 10), (1, "unbound", 10)]
    harness.apply(workload("db", "stateful", mounts=["disk"], action=Action.UPDATE, spec=scaled(3)))
    assert volumes(harness) == [(0, "bound", 10), (1, "bound", 10), (2, "bound", 10)]
    harness.apply(workload("db", "stateful", mounts=["disk"], action=Action.DELETE))
    assert {lifecycle for _, lifecycle, _ in volumes(harness)} == {"unused"}
    assert harness.state("volumeset/shop/disk")["usedByWorkload"] == ""
    harness.apply(volumeset(action=Action.DELETE))
    assert harness.records.applied.get("volumeset/shop/disk") == ()


def test_a_snapshot_of_each_volume_in_use_precedes_a_new_version(harness: RecordedHarness) -> None:
    def release(version: int, tags: dict[str, str], least: int = 2) -> None:
        made = workload("db", "stateful", mounts=["disk"], action=Action.UPDATE, spec=scaled(least), version=version)
        body = json.dumps(json.loads(made.body) | {"tags": tags}).encode()
        harness.apply(msgspec.structs.replace(made, body=body, digest=f"{version} {tags} {least}"))

    on_new_version = {"reconciler/snapshot-on": "new-version"}
    harness.apply(volumeset())
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    release(2, {})
    release(2, on_new_version)
    release(2, on_new_version, least=3)
    assert snapshots(harness) == [[], [], []]
    harness.records.runs.start("main", "main@sha1:c2", "poll")
    release(3, on_new_version, least=2)
    release(4, on_new_version)
    assert snapshots(harness) == [["before-db-00003", "before-db-00004"]] * 2 + [[]]
    [volume, *_] = harness.state("volumeset/shop/disk")["volumes"]
    [snapshot, *_] = volume["volumeSnapshots"]
    assert snapshot["tags"] == on_new_version | {
        "reconciler/workload": "db",
        "reconciler/version": "3",
        "reconciler/commit": "c2",
    }
    assert snapshot["size"] == 10
    for version in range(5, 16):
        release(version, on_new_version)
    assert snapshots(harness)[0] == [f"before-db-{version:05d}" for version in range(5, 16)]


def snapshots(harness: RecordedHarness) -> list[list[str]]:
    """The names of the snapshots of each volume."""
    found = harness.state("volumeset/shop/disk")["volumes"]
    return [[each["name"] for each in volume["volumeSnapshots"]] for volume in found]


def test_a_volume_set_moves_from_one_workload_to_another(harness: RecordedHarness) -> None:
    harness.apply(volumeset())
    harness.apply(workload("old", "stateful", mounts=["disk"]))
    harness.apply(workload("old", "stateful", action=Action.UPDATE))
    assert harness.state("volumeset/shop/disk")["usedByWorkload"] == ""
    harness.apply(workload("new", "stateful", mounts=["disk"]))
    assert harness.state("volumeset/shop/disk")["usedByWorkload"] == "/org/acme/gvc/shop/workload/new"
    harness.apply(workload("old", "stateful", action=Action.DELETE))
    assert volumes(harness) == [(0, "bound", 10), (1, "bound", 10)]


def test_a_larger_capacity_grows_every_volume_and_none_ever_shrinks(harness: RecordedHarness) -> None:
    harness.apply(volumeset())
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    harness.command("volumeset/shop/disk", "expandVolume", volumeIndex=1, newStorageCapacity=50)
    harness.apply(volumeset(capacity=20, action=Action.UPDATE))
    assert volumes(harness) == [(0, "bound", 20), (1, "bound", 50)]


def test_a_replaced_volume_set_has_new_volumes_for_the_workload_that_uses_it(harness: RecordedHarness) -> None:
    harness.apply(volumeset())
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    harness.command("volumeset/shop/disk", "expandVolume", volumeIndex=1, newStorageCapacity=50)
    harness.apply(volumeset(action=Action.REPLACE, version=2))
    assert volumes(harness) == [(0, "bound", 10), (1, "bound", 10)]


def test_a_volume_set_finds_the_workload_that_mounts_it_already(harness: RecordedHarness) -> None:
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    reference = Reference("volumeset/shop/disk", "/spec/containers/0/volumes/0/uri")
    harness.records.desired.replace("main", [], [entry("workload/shop/db", reference)])
    harness.apply(volumeset())
    assert volumes(harness) == [(0, "bound", 10), (1, "bound", 10)]


def entry(key: str, *references: Reference) -> DesiredEntry:
    return DesiredEntry(key, "main", "shop/db.yaml", 0, 1, "blob", "digest-1", references)


def cron(**more: Any) -> Step:
    return workload("report", "cron", **more)


def test_a_cron_workload_can_be_run_on_demand_and_keeps_its_history_short(harness: RecordedHarness) -> None:
    harness.apply(cron())
    assert harness.state("workload/shop/report")["status"]["endpoint"] == ""
    for number in range(1, 6):
        done = harness.command(
            "workload/shop/report", "runCronWorkload", containerOverrides=[{"name": "main", "args": ["-v"]}]
        )
        assert (done["name"], done["status"], done["workloadVersion"]) == (f"report-{number}", "Success", 1)
    names = [one["name"] for one in harness.state("workload/shop/report")["status"]["jobExecutions"]]
    assert names == ["report-3", "report-4", "report-5"]
    harness.apply(cron(action=Action.UPDATE, version=2))
    assert len(harness.state("workload/shop/report")["status"]["jobExecutions"]) == 3


def test_executions_of_the_engine_that_had_the_location_before_stay_once_they_ended(harness: RecordedHarness) -> None:
    harness.apply(cron())
    harness.command("workload/shop/report", "runCronWorkload")
    record = harness.record("workload/shop/report", WEST)
    state = msgspec.json.decode(record.state)
    [ended] = state["status"]["jobExecutions"]
    former = [ended | {"name": "report-x7k2p"}, ended | {"name": "report-29453761", "completionTime": ""}]
    state["status"]["jobExecutions"] = former
    harness.records.applied.put(msgspec.structs.replace(record, state=msgspec.json.encode(state)))
    harness.apply(cron(action=Action.UPDATE, version=2))
    assert harness.command("workload/shop/report", "runCronWorkload")["name"] == "report-1"
    names = [each["name"] for each in harness.state("workload/shop/report")["status"]["jobExecutions"]]
    assert names == ["report-x7k2p", "report-1"]


def test_a_suspended_cron_workload_can_be_run_on_demand(harness: RecordedHarness) -> None:
    harness.apply(cron(spec=scaled(1, suspend=True)))
    assert harness.command("workload/shop/report", "runCronWorkload")["status"] == "Success"


def test_snapshots_are_taken_restored_and_deleted(harness: RecordedHarness) -> None:
    harness.apply(volumeset())
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    key, expires = "volumeset/shop/disk", "2027-01-01T00:00:00Z"
    status = harness.command(
        key, "createVolumeSnapshot", volumeIndex=0, snapshotName="s1", snapshotExpirationDate=expires, tags={"a": "b"}
    )
    snapshot = {"name": "s1", "created": "2026-01-01T00:00:00Z", "expires": expires, "size": 10, "tags": {"a": "b"}}
    assert status["volumeSnapshots"] == [snapshot]
    assert harness.state(key)["volumes"][0]["volumeSnapshots"] == [snapshot]
    harness.command(key, "expandVolume", volumeIndex=0, newStorageCapacity=30)
    harness.command(key, "restoreVolume", volumeIndex=0, snapshotName="s1")
    assert volumes(harness)[0] == (0, "bound", 30)
    harness.command(key, "deleteVolumeSnapshot", volumeIndex=0, snapshotName="s1")
    assert harness.state(key)["volumes"][0]["volumeSnapshots"] == []


def test_snapshots_are_proven_and_cloned(harness: RecordedHarness) -> None:
    harness.apply(volumeset(), volumeset("copy"))
    harness.apply(workload("db", "stateful", mounts=["disk"]), workload("other", "stateful", mounts=["copy"]))
    key = "volumeset/shop/disk"
    harness.command(key, "createVolumeSnapshot", volumeIndex=0, snapshotName="s1")
    proven = harness.command(key, "verifyVolumeSnapshot", volumeIndex=0, snapshotName="s1")
    assert proven["lastProven"] == proven["volumeSnapshots"][0]["tags"]["reconciler/proven"] == "2026-01-01T00:00:00Z"
    clone = harness.command("volumeset/shop/copy", "cloneVolumeSnapshot", volumeIndex=0, snapshotName="s1", source=key)
    assert clone["volumeSnapshots"][0]["tags"] == {"reconciler/cloned-from": "volumeset/shop/disk/0/s1"}
    assert "lastProven" not in clone
    gone = harness.command(key, "deleteVolumeSnapshot", volumeIndex=0, snapshotName="s1")
    assert "lastProven" not in gone


def test_a_deleted_volume_in_use_is_at_once_a_fresh_one_and_else_a_memory(harness: RecordedHarness) -> None:
    harness.apply(volumeset())
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    harness.command("volumeset/shop/disk", "expandVolume", volumeIndex=0, newStorageCapacity=30)
    harness.command("volumeset/shop/disk", "deleteVolume", volumeIndex=0)
    assert volumes(harness)[0] == (0, "bound", 30)
    harness.apply(workload("db", "stateful", mounts=["disk"], action=Action.DELETE))
    harness.command("volumeset/shop/disk", "deleteVolume", volumeIndex=0)
    assert volumes(harness) == [(0, "deleted", 0), (1, "unused", 10)]
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    assert volumes(harness) == [(0, "bound", 10), (1, "bound", 10)]


REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("workload/shop/db", "runCronWorkload", {}, "only a cron workload"),
    ("workload/shop/db", "restart", {}, "no command restart"),
    ("workload/shop/none", "runCronWorkload", {}, "there is no workload/shop/none"),
    ("workload/shop/report", "runCronWorkload", {"containerOverrides": [{"name": "side"}]}, "no container side"),
    (
        "workload/shop/report",
        "runCronWorkload",
        {"surprise": 1},
        "no field surprise; there are: location, ",
    ),
    ("workload/shop/report", "runCronWorkload", {"location": "mars"}, "for mars"),
    ("workload/shop/report", "runCronWorkload", {"containerOverride": []}, "did you mean containerOverrides"),
    ("gvc/shop", "runCronWorkload", {}, "a gvc takes no commands"),
    ("volumeset/shop/disk", "restoreVolumes", {}, "did you mean restoreVolume"),
    ("volumeset/shop/disk", "deleteVolume", {"volumeindex": 0}, "did you mean volumeIndex"),
    ("volumeset/shop/disk", "shrinkVolume", {"volumeIndex": 0}, "no command shrinkVolume"),
    ("volumeset/shop/disk", "deleteVolume", {"volumeIndex": 7}, "no volume 7"),
    ("volumeset/shop/disk", "deleteVolume", {}, "deleteVolume needs volumeIndex; its fields are location, volumeIndex"),
    ("volumeset/shop/disk", "expandVolume", {"volumeIndex": 0, "newStorageCapacity": 10}, "must be larger"),
    ("volumeset/shop/disk", "expandVolume", {"volumeIndex": 0, "newStorageCapacity": 20000}, "at most 16384"),
    ("volumeset/shop/disk", "createVolumeSnapshot", {"volumeIndex": 0, "snapshotName": "there"}, "already"),
    ("volumeset/shop/disk", "createVolumeSnapshot", {"volumeIndex": 0, "snapshotName": " "}, "a name has up to 100"),
    (
        "volumeset/shop/disk",
        "createVolumeSnapshot",
        {"volumeIndex": 0, "snapshotName": "s", "snapshotExpirationDate": "tomorrow"},
        "UTC timestamp",
    ),
    ("volumeset/shop/disk", "restoreVolume", {"volumeIndex": 0, "snapshotName": "gone"}, "no snapshot gone"),
    ("volumeset/shop/disk", "deleteVolumeSnapshot", {"volumeIndex": 0, "snapshotName": "gone"}, "no snapshot gone"),
    ("volumeset/shop/disk", "verifyVolumeSnapshot", {"volumeIndex": 0, "snapshotName": "gone"}, "no snapshot gone"),
    ("volumeset/shop/disk", "verifyVolumeSnapshot", {"volumeIndex": 0, "snapshotName": ".."}, "not `..`"),
    *(
        (
            "volumeset/shop/disk",
            "cloneVolumeSnapshot",
            {"volumeIndex": 0, "snapshotName": name, "source": source},
            words,
        )
        for name, source, words in (
            ("gone", "//gvc/shop/volumeset/disk", "no snapshot gone"),
            ("there", "volumeset/shop/disk", "already"),
            ("there", "//gvc/shop/volumeset/none", "there is no volumeset/shop/none"),
            ("there", "//gvc/shop/workload/db", "it is a volume set like //gvc/shop/volumeset/data"),
            ("there", "volumeset/shop/disk/more", "it is a volume set like //gvc/shop/volumeset/data"),
            ("there", "/org/other/gvc/shop/volumeset/disk", "it is a volume set like //gvc/shop/volumeset/data"),
            ("a/b", "volumeset/shop/disk", "not `a/b`"),
        )
    ),
]


def test_nonsense_is_refused_for_good_and_changes_nothing(harness: RecordedHarness) -> None:
    harness.apply(volumeset(), cron())
    harness.apply(workload("db", "stateful", mounts=["disk"]))
    harness.command("volumeset/shop/disk", "createVolumeSnapshot", volumeIndex=0, snapshotName="there")
    before = list(harness.records.applied.items())
    for key, name, spec, words in REFUSED:
        with pytest.raises(EngineError, match=words) as raised:
            asyncio.run(harness.engines[WEST].command(Key.parse(key), name, {"location": WEST, **spec}))
        assert not raised.value.retry
    assert list(harness.records.applied.items()) == before


def test_observe_sees_one_location(harness: RecordedHarness) -> None:
    harness.apply(workload("api"), workload("api", location=EAST), workload("web", location=EAST))
    seen = asyncio.run(harness.engines[EAST].observe())
    assert [(str(one.key), one.location) for one in seen] == [
        ("workload/shop/api", EAST),
        ("workload/shop/web", EAST),
    ]
    assert [one.alias for one in asyncio.run(harness.engines[""].observe())] == [ALIAS]


async def test_a_command_sent_during_a_run_is_not_lost(harness: RecordedHarness) -> None:
    steps = [workload(f"w{n}") for n in range(600)]
    running = asyncio.create_task(harness.run(plan(cron(), *steps, cron(location=EAST))))
    sent = 0
    while not running.done():
        await asyncio.sleep(0)
        if harness.records.applied.exists("workload/shop/report") and sent < 2:
            sent += 1
            await harness.engines[WEST].command(
                Key.parse("workload/shop/report"), "runCronWorkload", {"location": WEST}
            )
    await running
    assert sent == 2
    assert len(harness.state("workload/shop/report")["status"]["jobExecutions"]) == 2


@pytest.mark.parametrize("lifecycle", ["creating", "unused", "unbound", "bound", "deleted", "repairing"])
def test_a_volume_is_read_in_every_phase(lifecycle: str) -> None:
    volume = {"index": 0, "lifecycle": lifecycle, "currentSize": 10}
    state = read_volumes(json.dumps({"name": WEST, "volumes": [volume]}).encode())
    assert state is not None
    assert [one.lifecycle for one in state.volumes] == [lifecycle]
