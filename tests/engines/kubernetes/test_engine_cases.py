"""No case of rendering drifts: what was applied is found again, and needs no second request."""

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
from reconciler.engines.kubernetes.rendering.namespace import render_namespace
from reconciler.model.key import Key
from reconciler.settings import ClusterSettings
from tests.engines.kubernetes.engine_kit import WRITES
from tests.engines.kubernetes.rendering.kit import decode, namespace_inputs
from tests.engines.kubernetes.rendering.test_cases import FOLDERS, result_of, setup_of
from tests.kubernetes.api_server import FakeApiServer, fake_api_server

INSTANCE = "1f0c2b9a7e5d"
"""The owner of the objects of all cases."""
APPLIED = [folder for folder in FOLDERS if result_of(folder).get("objects")]


def list_batches(folder: Path) -> list[tuple[Key, list[dict[str, Any]]]]:
    """The objects of a case by the resource that has them, those of its namespace first."""
    setup = setup_of(folder)
    manifests = decode((folder / "manifest.yaml").read_text(), setup.scheme)
    spaces = render_namespace(namespace_inputs(manifests, setup))
    batches: dict[Key, list[dict[str, Any]]] = {}
    for item in [*spaces, *(result_of(folder)["objects"] if setup.shows != "namespace" else ())]:
        batches.setdefault(Key.parse(item["metadata"]["annotations"]["reconciler.dev/key"]), []).append(item)
    return list(batches.items())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeApiServer]:
    with fake_api_server(tmp_path / "cluster") as server:
        server.install("HTTPRoute", "KnativeService", "HTTPScaledObject", "VolumeSnapshot", "PodMetrics")
        server.install_crd("serving.knative.dev", "v1beta1", "DomainMapping", "domainmappings")
        server.run_controllers()
        yield server


@pytest.mark.parametrize("folder", APPLIED, ids=lambda folder: folder.name)
def test_a_case_has_no_drift(folder: Path, server: FakeApiServer) -> None:
    asyncio.run(assert_no_drift(folder, server))


def mutate(value: dict[str, Any]) -> None:
    """As a service mesh does."""
    value["metadata"].setdefault("annotations", {})["mesh.example/injected"] = "true"
    pods = value.get("spec", {}).get("template", {}).get("spec")
    if pods and "containers" in pods and all(container["name"] != "mesh" for container in pods["containers"]):
        pods["containers"].append({"name": "mesh", "image": "mesh:1"})


async def assert_no_drift(folder: Path, server: FakeApiServer) -> None:
    server.admission.mutate("*", mutate)
    clock, api = SystemClock(), KubeApi(ClusterSettings(kubeconfig=server.kubeconfig), SystemClock())
    owner = Owner(INSTANCE, setup_of(folder).location)
    mirror = ClusterMirror(api, owner, clock, lambda key: None)
    applier = ObjectApplier(api, mirror, owner, ())
    try:
        batches = list_batches(folder)
        await mirror.follow(sorted({id_of(item).kind for _, objects in batches for item in objects}))
        for key, objects in batches:
            await applier.apply(key, objects)
            await applier.prune(key, objects)
        server.converge()
        await asyncio.sleep(0.05)
        server.clear_requests()
        for key, objects in batches:
            assert applier.find_changes(key) == []
            assert not await applier.apply(key, objects)
            assert not await applier.prune(key, objects)
        assert [request for request in server.requests if request.verb in WRITES] == []
    finally:
        await mirror.close("test")
        await api.close()
