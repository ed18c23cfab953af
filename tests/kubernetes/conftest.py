"""Clusters of the tests: each begins when the first test wants it, and ends with the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster.build import MODULE_FILES, NEWEST, NO_GO, find_go, is_built
from tests.kubernetes.cluster.control_plane import Cluster, running_cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.cluster.objects import describe_namespace
from tests.kubernetes.real_harness import RealHarness


def _running(minor: str) -> Iterator[Cluster]:
    if find_go() is None and not is_built(minor) and not os.environ.get("CI"):
        pytest.skip(NO_GO)
    with running_cluster(minor) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def newest_cluster() -> Iterator[Cluster]:
    """A cluster of the newest version."""
    yield from _running(NEWEST)


@pytest.fixture(scope="session", params=MODULE_FILES)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of each version."""
    if request.param == NEWEST:
        yield request.getfixturevalue("newest_cluster")
    else:
        yield from _running(request.param)


@pytest.fixture(scope="session")
def kubelet(cluster: Cluster) -> Iterator[Kubelet]:
    """The kubelets of ``cluster``: two nodes, where a second of a manifest takes 0.02 s."""
    kubelet = Kubelet(cluster.kubeconfig)
    try:
        kubelet.start()
        yield kubelet
    finally:
        kubelet.stop()
    assert kubelet.faults == []


@pytest.fixture
def namespace(cluster: Cluster, kubelet: Kubelet, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test."""
    name = request.node.originalname.replace("_", "-")[:50].strip("-")
    cluster.apply(describe_namespace(name))
    cluster.wait_for(lambda: cluster.api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").is_success)
    yield name
    cluster.api.delete(f"/api/v1/namespaces/{name}").raise_for_status()


@pytest.fixture
def harness(
    cluster: Cluster, kubelet: Kubelet, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[RealHarness]:
    """The engine in namespaces of one test."""
    assert kubelet
    prefix = f"e{abs(hash(request.node.name)) % 100_000}-"
    harness = RealHarness(tmp_path / "engine", cluster, prefix)
    harness.open()
    try:
        yield harness
    finally:
        harness.close()
        cluster.api.delete(f"/api/v1/namespaces/{harness.space}")
