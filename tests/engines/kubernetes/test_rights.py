"""The table of rights has each verb that the engine uses, and no other: an account with these is enough, and least."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.kubernetes.applying import ObjectApplier
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import id_of
from reconciler.engines.kubernetes.mirror import ClusterMirror
from reconciler.engines.kubernetes.ownership import Owner
from reconciler.engines.kubernetes.reading.checks import check_clusters
from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.engines.protocol import Result
from reconciler.engines.reading import ExecTarget
from reconciler.model.key import Key, Kind
from reconciler.settings import ClusterSettings, Settings
from tests.engines.kubernetes.engine_kit import SPACE, WEB, ClusterHarness, change_body, make_step
from tests.engines.kubernetes.reading_kit import EVERYTHING, make_settings
from tests.engines.kubernetes.rendering.test_cases import setup_of
from tests.engines.kubernetes.test_engine_cases import APPLIED, INSTANCE, list_batches
from tests.engines.kubernetes.volume_kit import end_step, make_user_step
from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.kubernetes.rights import list_requested_rights, list_table
from tests.support.plans import step

SESSIONS = {("create", "pods/exec"), ("get", "pods/exec")}
"""What the beginning of a session needs, by the version of the server; the log of requests has no WebSockets."""
DATA = Key(Kind.VOLUMESET, SPACE, "data")
KINDS = ("HTTPRoute", "KnativeService", "HTTPScaledObject", "VolumeSnapshot", "PodMetrics")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeApiServer]:
    """A cluster that serves all that the engine uses."""
    with fake_api_server(tmp_path / "cluster") as server:
        server.install(*KINDS)
        server.install_crd("serving.knative.dev", "v1beta1", "DomainMapping", "domainmappings")
        server.run_controllers()
        yield server


def test_each_right_is_used_and_each_used_right_is_in_the_table(server: FakeApiServer, tmp_path: Path) -> None:
    for number, folder in enumerate(APPLIED):
        asyncio.run(use_objects(folder, server, f"case-{number}"))
    use_commands(server, tmp_path)
    used = list_requested_rights(server)
    assert sorted(used - list_table()) == [], "list these verbs in access.py"
    unused = sorted(list_table() - used - SESSIONS)
    assert unused == [], f"nothing needs these verbs, remove them in access.py: {unused}"


async def use_objects(folder: Path, server: FakeApiServer, namespace: str) -> None:
    """Apply the objects of a case, again after another program took a label away, and delete them."""
    api, owner = (
        KubeApi(ClusterSettings(kubeconfig=server.kubeconfig), SystemClock()),
        Owner(INSTANCE, setup_of(folder).location),
    )
    mirror = ClusterMirror(api, Everywhere(owner), SystemClock(), lambda key: None)
    applier = ObjectApplier(api, mirror, owner, ())
    batches = [(key, [move(item, namespace) for item in objects]) for key, objects in list_batches(folder)]
    try:
        await mirror.follow(sorted({id_of(item).kind for _, objects in batches for item in objects}))
        for key, objects in batches:
            await applier.apply(key, objects)
        for item in (item for _, objects in batches for item in objects):
            target = id_of(item)
            label = {"metadata": {"labels": {"reconciler.dev/location": None}}}
            await asyncio.to_thread(
                server.patch, target.kind.kind, target.name, target.namespace, label, group=target.kind.group
            )
            while mirror.get(target) is not None:
                await asyncio.sleep(0.005)
        for key, objects in batches:
            await applier.apply(key, objects)
        for key, _ in batches:
            if key.kind is Kind.WORKLOAD:
                await applier.prune(key, [])
    finally:
        await mirror.close("test")
        await api.close()


def move(item: dict[str, Any], namespace: str) -> dict[str, Any]:
    """``item`` in another namespace."""
    place = "name" if item["kind"] == "Namespace" else "namespace"
    return {**item, "metadata": {**item["metadata"], place: namespace}}


class Everywhere:
    """The objects of an owner in all namespaces."""

    def __init__(self, owner: Owner) -> None:
        self.select = owner.select

    def has(self, item: object) -> bool:
        """Whether an object is one of them."""
        return item is not None


def use_commands(server: FakeApiServer, path: Path) -> None:
    """Use volumes, executions, logs and sessions of a location, and the checks of `doctor`."""
    harness = ClusterHarness(path / "engine", server)
    harness.open()
    try:
        use_volumes(harness)
        use_executions(harness)
        use_readers(harness, make_settings(path, server.kubeconfig))
        use_move(harness)
    finally:
        harness.close()


def use_volumes(harness: ClusterHarness) -> None:
    harness.server.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "general-purpose-ssd-ext4"},
            "provisioner": "test",
            "allowVolumeExpansion": True,
        }
    )
    volumes = {
        "kind": "volumeset",
        "name": "data",
        "spec": {"initialCapacity": 10, "performanceClass": "general-purpose-ssd", "fileSystemType": "ext4"},
    }
    body = change_body(volumes=[{"uri": "platform://volumeset/data", "path": "/data"}])
    body["spec"]["type"] = "stateful"
    body["spec"]["defaultOptions"]["autoscaling"] |= {"minScale": 1, "maxScale": 1}
    harness.apply(step(str(DATA), body=volumes, engine="kubernetes"))
    harness.apply(make_step(body))
    harness.wait_for_health()
    harness.server.controllers.kubelet.takes_snapshots = True
    where = {"location": "here", "volumeIndex": 0}
    snapshot = {**where, "snapshotName": "nightly"}
    for name, spec in (
        ("createVolumeSnapshot", snapshot),
        ("createVolumeSnapshot", snapshot),
        ("expandVolume", {**where, "newStorageCapacity": 20}),
        ("restoreVolume", snapshot),
        ("deleteVolumeSnapshot", snapshot),
    ):
        harness.do(harness.engine.command(DATA, name, spec, name))
        harness.catch_up()


def use_executions(harness: ClusterHarness) -> None:
    body = change_body(ports=None)
    body["spec"] = {"type": "cron", "containers": body["spec"]["containers"], "job": {"schedule": "0 0 1 1 *"}}
    body["name"] = "report"
    report = make_step(body)
    harness.apply(report)
    for _ in range(2):
        harness.do(harness.engine.command(report.key, "runCronWorkload", {"location": "here"}, "one"))
    gone = make_step(body, action=type(report.action)("delete"))
    harness.until(lambda: harness.apply(gone)[str(report.key)].message == "", "it is deleted")


def use_readers(harness: ClusterHarness, settings: Settings) -> None:
    harness.server.pods.script(f"{SPACE}/*", "Crash", "it fails", 3, restarts=2)
    harness.server.converge()
    harness.until(lambda: not harness.see_web().health.is_good, "the pod fails")
    reader, key = KubernetesReader(settings, "here"), Key.parse(WEB)
    assert reader.replicas()
    list(reader.search_logs(EVERYTHING).backward())
    reader.has_token(key, "rw_x")
    harness.server.pods.script(f"{SPACE}/*", "Running")
    harness.server.converge()
    asyncio.run(use_session(reader, ExecTarget("here", key, "web-0", "main")))
    list(check_clusters(settings, "kubernetes"))


def use_move(harness: ClusterHarness) -> None:
    """Let the volume of a workload move to another one."""
    web = end_step(make_step(change_body()))
    harness.until(lambda: harness.apply(web)[WEB].result is Result.APPLIED, "the workload is gone")
    store = make_user_step("store")
    harness.until(lambda: harness.apply(store)[str(store.key)].result is Result.APPLIED, "the volume has moved")


async def use_session(reader: KubernetesReader, target: ExecTarget) -> None:
    session = await reader.open_session(target, ["true"], None)
    await session.wait()
    await session.close()
