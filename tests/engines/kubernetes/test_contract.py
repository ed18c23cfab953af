"""The promises of engines, on a fake API server."""

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
from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.kubernetes.rights import list_requested_rights, list_table
from tests.support.plans import ExecutorHarness


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeApiServer]:
    """A cluster in memory, which outlives the engine."""
    with fake_api_server(tmp_path / "cluster") as server:
        server.run_controllers()
        yield server


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_engine_keeps_its_promises(
    promise: Callable[[EngineHarness], None], server: FakeApiServer, tmp_path: Path
) -> None:
    def make(harness: ExecutorHarness, path: Path) -> EnginePair:
        bound = LocationSettings("kubernetes", cluster=ClusterSettings(kubeconfig=server.kubeconfig))
        settings = Settings("acme", (), path, locations={"here": bound})
        context = EngineContext(LocationRecords(harness.records, "here"), settings, harness.clock, no_secret)
        return EnginePair(KubernetesEngine(context), KubernetesReader(settings, "here"))

    with subject_of(Factory(make, SystemClock), tmp_path) as harness:
        promise(harness)
    assert list_requested_rights(server) <= list_table(), "list these verbs in access.py"
