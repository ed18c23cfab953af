"""What workloads on a cluster used in the last day: what the cluster measures of their pods, each minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.engines.protocol import Result
from reconciler.engines.usage_history import SupportsUsageHistory, UsagePoint
from reconciler.model.key import Key
from tests.engines.kubernetes.engine_kit import SPACE, WEB, ClusterHarness, engine_on_fake
from tests.engines.kubernetes.reading_kit import make_settings

KEY = Key.parse(WEB)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ClusterHarness]:
    with engine_on_fake(tmp_path) as harness:
        yield harness


def add_usage(harness: ClusterHarness, cpu: str, memory: str) -> None:
    """What metrics-server measures of each pod."""
    for pod in harness.server.objects("Pod", SPACE):
        metadata = {name: pod["metadata"][name] for name in ("name", "namespace", "labels")}
        usage = [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}]
        harness.server.create(
            {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": metadata, "containers": usage}
        )


def read_points(harness: ClusterHarness) -> list[UsagePoint]:
    """The points as people read them."""
    reader = KubernetesReader(make_settings(harness.path, harness.server.kubeconfig), harness.location)
    assert isinstance(reader, SupportsUsageHistory)
    return reader.usage_history(KEY)


def start_web(harness: ClusterHarness) -> None:
    """The workload runs."""
    harness.server.install("PodMetrics")
    harness.apply_web()
    harness.wait_for_health()


def test_a_point_has_what_the_cluster_measures_of_all_pods(harness: ClusterHarness) -> None:
    start_web(harness)
    add_usage(harness, "250m", "64Mi")
    harness.do(harness.engine._usage.measure())
    (point,) = read_points(harness)
    assert (point.cpu, point.memory, point.requests, point.latency) == (500.0, 128.0 * 2**20, None, None)
    assert (point.ready, point.wanted) == (2, 2)


def test_a_cluster_without_metrics_shows_replicas_alone(harness: ClusterHarness) -> None:
    start_web(harness)
    harness.server.fail("list pods.metrics.k8s.io", 503, times=-1)
    harness.do(harness.engine._usage.measure())
    (point,) = read_points(harness)
    assert (point.cpu, point.memory, point.ready) == (None, None, 2)


def test_a_workload_that_is_deleted_leaves_no_points(harness: ClusterHarness) -> None:
    start_web(harness)
    harness.do(harness.engine._usage.measure())
    assert read_points(harness)
    harness.until(lambda: harness.delete_web().result is Result.APPLIED, "web is gone")
    assert read_points(harness) == []
    harness.catch_up()
    harness.do(harness.engine._usage.measure())
    assert read_points(harness) == []
