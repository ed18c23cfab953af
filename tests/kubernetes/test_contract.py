"""The promises of engines, on a real cluster, by an account with the rights of the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.kubernetes.engine import KubernetesEngine
from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.settings import ClusterSettings, LocationSettings, Settings
from tests.engines.contract import PROMISES, EngineHarness, EnginePair, Factory, subject_of
from tests.engines.test_contract import no_secret
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.rights import give_rights
from tests.support.plans import ExecutorHarness

pytestmark = pytest.mark.cluster


@pytest.fixture
def factory(cluster: Cluster, kubelet: Kubelet, request: pytest.FixtureRequest) -> Iterator[Factory]:
    """Makes engines in a namespace of the test."""
    assert kubelet
    prefix = f"{request.node.callspec.params['promise'].__name__.replace('_', '-')[:24]}-"
    bound = ClusterSettings(kubeconfig=give_rights(cluster), namespace_prefix=prefix)

    def make(harness: ExecutorHarness, path: Path) -> EnginePair:
        settings = Settings("acme", (), path, locations={"here": LocationSettings("kubernetes", cluster=bound)})
        context = EngineContext(LocationRecords(harness.records, "here"), settings, harness.clock, no_secret)
        return EnginePair(KubernetesEngine(context), KubernetesReader(settings, "here"))

    yield Factory(make, SystemClock)
    cluster.api.delete(f"/api/v1/namespaces/{prefix}shop")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_engine_keeps_its_promises(
    promise: Callable[[EngineHarness], None], factory: Factory, tmp_path: Path
) -> None:
    with subject_of(factory, tmp_path) as harness:
        promise(harness)
