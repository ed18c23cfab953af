"""Volumes on a real cluster: snapshots by schedule, final snapshots, growth, and moves between workloads."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.protocol import Result
from reconciler.engines.volumes import ReplicaVolume, read_volumes
from reconciler.errors import EngineError
from reconciler.model.quantity import GIB
from reconciler.reasons import ConditionType, Reason
from tests.engines.kubernetes.volume_kit import (
    DATA,
    HOURS,
    MINUTES,
    ShiftedClock,
    end_step,
    make_user_step,
    make_volume_step,
)
from tests.kubernetes.cluster.addresses import LOOPBACK
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.definitions import SNAPSHOTS
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.cluster.objects import STORAGE_CLASS
from tests.kubernetes.rights import ACCOUNT, give_rights
from tests.kubernetes.test_engine import RealHarness
from tests.support.plans import plan

pytestmark = pytest.mark.cluster

CLASS = {**STORAGE_CLASS, "metadata": {"name": "general-purpose-ssd-ext4"}}
GROWTH = {"maxCapacity": 100, "minFreePercentage": 20, "scalingFactor": 1.5}
NO_ADDRESS = (
    "this machine has no address but loopback, and none can be added to lo: run this as root with the command ip, or "
    "with a network; an API server asks no node on loopback how full its volumes are"
)
HOURLY = {"schedule": "0 * * * *"}


class RealVolumes(RealHarness):
    """The engine on a cluster with snapshots, whose watcher works only when a test says so."""

    clock: ShiftedClock
    clock_type = ShiftedClock

    def perform(self, *steps: Any) -> None:
        """Perform steps until each is done."""
        for step in steps:
            self.until(lambda step=step: self.apply(step)[str(step.key)].result is Result.APPLIED, f"{step.key}")

    def list(self, kind: str) -> list[dict[str, Any]]:
        """The objects of a kind in the namespace."""
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "--output", "json"))["items"]
        return items

    def check(self) -> None:
        """Let the watcher of volumes look once."""
        self.catch_up()
        self.do(self.check_volumes())

    async def check_volumes(self) -> None:
        """As ``check``, with what the watches have shown."""
        await self.engine._watcher.check(self.engine._list_volume_sets())

    def volumes(self) -> dict[str, str]:
        """The PersistentVolume of each claim that is bound."""
        claims = self.list("persistentvolumeclaims")
        bound = [claim for claim in claims if claim["status"].get("phase") == "Bound"]
        return {claim["metadata"]["name"]: claim["spec"]["volumeName"] for claim in bound}

    def start_user(self, name: str) -> dict[str, str]:
        """Apply a workload with two volumes, and return these once they are bound."""
        self.perform(make_user_step(name, replicas=2))
        self.until(lambda: {f"data-{name}-0", f"data-{name}-1"} <= self.volumes().keys(), "the volumes are bound")
        self.catch_up()
        return self.volumes()


@pytest.fixture
def harness(
    cluster: Cluster, kubelet: Kubelet, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[RealVolumes]:
    assert kubelet
    cluster.install(*SNAPSHOTS)
    cluster.apply(CLASS)
    harness = RealVolumes(tmp_path / "engine", cluster, f"v{abs(hash(request.node.name)) % 100_000}-")
    harness.open()
    try:
        yield harness
    finally:
        harness.close()
        cluster.api.delete(f"/api/v1/namespaces/{harness.space}")


@pytest.fixture
def asking(cluster: Cluster, kubelet: Kubelet) -> Iterator[Kubelet]:
    """The kubelets, which the account of the daemon may ask through the API server."""
    if kubelet.address == LOOPBACK:
        assert not os.environ.get("CI"), NO_ADDRESS
        pytest.skip(NO_ADDRESS)
    metadata = {"name": f"{ACCOUNT}-nodes"}
    rule = {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}
    rbac, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    binding = {
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", **metadata},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": ACCOUNT}],
    }
    account = give_rights(cluster)
    cluster.apply(
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": metadata, "rules": [rule]},
        {"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": metadata, **binding},
    )
    cluster.wait_for(lambda: may_ask_nodes(cluster, account))
    yield kubelet
    cluster.api.delete(f"/apis/{rbac}/clusterrolebindings/{metadata['name']}").raise_for_status()
    cluster.wait_for(lambda: not may_ask_nodes(cluster, account))


def may_ask_nodes(cluster: Cluster, account: Path) -> bool:
    """Whether the account may ask kubelets; the server learns of a role a moment later."""
    with cluster.start_kubectl("auth", "can-i", "get", "nodes", "--subresource=proxy", config=account) as process:
        return process.communicate(timeout=60.0)[0].strip() == "yes"


def test_a_snapshot_is_taken_by_schedule_and_a_final_one_outlives_the_volumes(harness: RealVolumes) -> None:
    harness.perform(make_volume_step(snapshots=HOURLY))
    harness.start_user("db")
    harness.engine.begin_schedules()
    harness.check()
    assert harness.list("volumesnapshots") == []
    harness.clock.shift += HOURS
    harness.check()
    harness.check()
    snapshots = harness.list("volumesnapshots")
    assert sorted(item["spec"]["source"]["persistentVolumeClaimName"] for item in snapshots) == [
        "data-db-0",
        "data-db-1",
    ]
    harness.perform(end_step(make_user_step("db", replicas=2)), end_step(make_volume_step()))
    harness.until(lambda: harness.list("persistentvolumeclaims") == [], "the claims are gone")
    finals = harness.list("volumesnapshots")
    assert len(finals) == 2
    assert all(item["metadata"]["annotations"]["reconciler.dev/final"] for item in finals)
    assert all(item["status"]["readyToUse"] for item in finals)


def test_a_volume_set_moves_to_another_workload_with_its_data(harness: RealVolumes) -> None:
    harness.perform(make_volume_step())
    before = harness.start_user("db")
    harness.perform(end_step(make_user_step("db", replicas=2)))
    harness.catch_up()
    after = harness.start_user("store")
    assert after == {claim.replace("-db-", "-store-"): volume for claim, volume in before.items()}
    for name in after.values():
        volume = json.loads(harness.kubectl("get", "persistentvolume", name, "--output", "json"))
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert volume["status"]["phase"] == "Bound"
    harness.until(lambda: harness.see()["workload/shop/store"].health.is_good, "its pods run")
    assert harness.see()[str(DATA)].health.is_good


def test_a_restore_that_a_quota_refuses_leaves_the_data_in_service(harness: RealVolumes) -> None:
    harness.perform(make_volume_step())
    former = harness.start_user("db")
    where = {"location": "here", "volumeIndex": 1, "snapshotName": "nightly"}
    harness.do(harness.engine.command(DATA, "createVolumeSnapshot", where, "take"))
    harness.until(lambda: harness.list("volumesnapshots")[0].get("status", {}).get("readyToUse"), "it is taken")
    hard = {"requests.storage": "25Gi", "persistentvolumeclaims": "2"}
    metadata = {"name": "small", "namespace": harness.space}
    harness.cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})
    harness.until(lambda: harness.list("resourcequotas")[0].get("status", {}).get("used"), "the quota counts")
    harness.catch_up()
    harness.do(harness.engine.command(DATA, "restoreVolume", where, "restore"))
    harness.until(lambda: harness.volumes().get("data-db-1", former["data-db-1"]) != former["data-db-1"], "restored")
    harness.check()
    harness.until(lambda: former["data-db-1"] not in read_volume_names(harness), "the former volume is gone")
    present = harness.volumes()
    enlarge_snapshot(harness, harness.list("volumesnapshots"))
    with pytest.raises(EngineError) as caught:
        harness.do(harness.engine.command(DATA, "restoreVolume", where, "again"))
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    harness.until(lambda: harness.volumes() == present, "the former volume is in service")
    harness.wait_for_health()


def test_a_daemon_killed_amid_the_undo_of_a_restore_loses_nothing(harness: RealVolumes, kubelet: Kubelet) -> None:
    """The new claim gets no volume, and the daemon ends again and again while it brings the former one back."""
    harness.perform(make_volume_step())
    before = harness.start_user("db")
    harness.until(lambda: harness.see()["workload/shop/db"].health.is_good, "its pods run")
    where = {"location": "here", "volumeIndex": 1, "snapshotName": "nightly"}
    harness.do(harness.engine.command(DATA, "createVolumeSnapshot", where, "take"))
    harness.until(lambda: harness.list("volumesnapshots")[0].get("status", {}).get("readyToUse"), "it is taken")
    harness.catch_up()
    kubelet.provisioner.capacity_limit = "out of disk"
    try:
        harness.do(harness.engine.command(DATA, "restoreVolume", where, "restore"))
        harness.check()
        harness.clock.shift += HOURS
        chance = random.Random(3)
        for seconds in (0.02, 0.05, *(chance.random() * 0.5 for _ in range(6))):
            harness.catch_up()
            harness.do(break_off(harness.check_volumes(), seconds))
            harness.begin_anew()
            harness.check()
            harness.clock.shift += HOURS + MINUTES
            harness.perform(make_user_step("db", replicas=2))
        harness.check()
    finally:
        kubelet.provisioner.capacity_limit = ""
    harness.until(lambda: harness.volumes() == before, "the former volumes are in service")
    harness.until(lambda: harness.see()["workload/shop/db"].health.is_good, "its pods run")
    assert "reconciler.dev/restore-undone" in harness.kubectl("get", "pvc", "data-db-1", "--output", "yaml")
    assert "undo.reconciler.dev" not in harness.kubectl("get", "configmap", "reconciler", "--output", "yaml")
    assert_not_retained(harness, before["data-db-1"])


def test_usage_that_the_account_may_not_read_is_named(harness: RealVolumes) -> None:
    harness.perform(make_volume_step(autoscaling=GROWTH))
    harness.start_user("db")
    harness.until(lambda: harness.see()["workload/shop/db"].health.is_good, "its pods run")
    harness.check()
    assert b"does not let the daemon read how full they are (get of nodes/proxy)" in harness.see()[str(DATA)].state


def test_a_volume_grows_as_its_kubelet_measures_it(harness: RealVolumes, asking: Kubelet) -> None:
    harness.perform(make_volume_step(autoscaling=GROWTH))
    harness.start_user("db")
    measure(harness, asking, {"data-db-0": 9 * GIB, "data-db-1": 5 * GIB})
    assert [(volume.current_size, volume.current_bytes_used) for volume in see_volumes(harness)] == [
        (10, 9 * GIB),
        (10, 5 * GIB),
    ]
    harness.until(lambda: [volume.current_size for volume in see_volumes(harness)] == [16.875, 10], "it has grown")
    assert not engine_conditions(harness.see()[str(DATA)].state)
    harness.perform(make_volume_step(version=2, autoscaling=GROWTH), make_user_step("db", version=2, replicas=2))
    harness.until(lambda: harness.see()["workload/shop/db"].health.is_good, "it is no drift")
    assert [volume.current_size for volume in see_volumes(harness)] == [16.875, 10]


def test_a_kubelet_that_does_not_answer_is_a_condition_of_its_volumes(harness: RealVolumes, asking: Kubelet) -> None:
    harness.perform(make_volume_step(autoscaling=GROWTH))
    harness.start_user("db")
    measure(harness, asking, {"data-db-0": 5 * GIB, "data-db-1": 5 * GIB})
    [node] = {pod["spec"]["nodeName"] for pod in harness.list("pods") if pod["metadata"]["name"] == "db-1"}
    asking.silence_node(node, True)
    try:
        for _ in range(2):
            pass_minutes(harness)
        [condition] = engine_conditions(harness.see()[str(DATA)].state)
        assert condition.type == ConditionType.VOLUME_CHECK_FAILING
        assert f"read the usage of volumes at {node}: error trying to reach service" in condition.message
        assert [volume.current_bytes_used for volume in see_volumes(harness)] == [5 * GIB, 5 * GIB]
    finally:
        asking.silence_node(node, False)
    measure(harness, asking, {"data-db-1": 9 * GIB})
    harness.until(lambda: see_volumes(harness)[1].current_size == 16.875, "it has grown")
    assert not engine_conditions(harness.see()[str(DATA)].state)


def measure(harness: RealVolumes, kubelet: Kubelet, used: dict[str, int]) -> None:
    """Let the watcher look once its pods run and its kubelets have measured claims."""
    harness.until(lambda: harness.see()["workload/shop/db"].health.is_good, "its pods run")
    kubelet.used_bytes |= {f"{harness.space}/{claim}": count for claim, count in used.items()}
    pass_minutes(harness)


def pass_minutes(harness: RealVolumes) -> None:
    """Let the watcher look two minutes later."""
    harness.clock.shift += 2 * MINUTES
    harness.check()


def see_volumes(harness: RealVolumes) -> tuple[ReplicaVolume, ...]:
    """The volumes as they are shown."""
    state = read_volumes(harness.see()[str(DATA)].state)
    assert state is not None
    return state.volumes


def test_a_daemon_killed_amid_a_move_loses_nothing(harness: RealVolumes) -> None:
    harness.perform(make_volume_step())
    before = harness.start_user("db")
    harness.perform(end_step(make_user_step("db", replicas=2)))
    chance = random.Random(5)
    for _ in range(6):
        harness.do(break_off(harness.run(plan(make_user_step("store", replicas=2))), chance.random() * 0.15))
        harness.begin_anew()
    after = harness.start_user("store")
    assert after == {claim.replace("-db-", "-store-"): volume for claim, volume in before.items()}
    for name in after.values():
        assert_not_retained(harness, name)


def assert_not_retained(harness: RealVolumes, name: str) -> None:
    """A volume ends with its claim again."""
    volume = json.loads(harness.kubectl("get", "persistentvolume", name, "--output", "json"))
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    assert "reconciler.dev/reclaim-policy" not in volume["metadata"]["annotations"]


async def break_off(work: Coroutine[Any, Any, object], seconds: float) -> None:
    """Cancel ``work`` amid its requests, as the end of the process does."""
    run = asyncio.create_task(work)
    await asyncio.sleep(seconds)
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run


def read_volume_names(harness: RealVolumes) -> list[str]:
    return harness.kubectl("get", "persistentvolumes", "--output", "jsonpath={.items[*].metadata.name}").split()


def enlarge_snapshot(harness: RealVolumes, snapshots: list[dict[str, Any]]) -> None:
    """Let the snapshot ``nightly`` need more than the quota has."""
    names = {
        item["metadata"]["annotations"]["reconciler.dev/snapshot-name"]: item["metadata"]["name"] for item in snapshots
    }
    change = json.dumps({"status": {"restoreSize": "20Gi"}})
    harness.kubectl(
        "patch", "volumesnapshot", names["nightly"], "--type", "merge", "--subresource", "status", "-p", change
    )
    harness.catch_up()
