"""Every engine there is keeps what the contract promises."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.documents.schema.loader import load_schema
from reconciler.engines.context import EngineContext
from reconciler.engines.host import runtimes
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.runtimes.plugins import AUTO, runtime_plugin
from reconciler.engines.host.runtimes.podman.runtime import PodmanRuntime
from reconciler.engines.protocol import Engine
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.settings import HostSettings, LocationSettings, Settings
from tests.engines.contract import PROMISES, Factory, Subject, subject_of
from tests.engines.host.podman.libpod import Libpod
from tests.support.clock import FakeClock
from tests.support.engines import LedgerEngine
from tests.support.host_sandbox import let_others_through
from tests.support.plans import Bench


def recorded(bench: Bench, _path: Path) -> Engine:
    return RecordedEngine(bench.records, "here", "acme", "example.net", bench.clock)


def ledger(_bench: Bench, path: Path) -> Engine:
    return LedgerEngine(path)


def host(bench: Bench, path: Path, runtime: str) -> Engine:
    def no_secret(key: object) -> object:
        raise AssertionError(f"nothing here uses {key}")

    let_others_through(path.parent)
    settings = Settings("acme", (), path, host=HostSettings(termination_scale=0.002))
    site = EngineContext(bench.records, "here", settings, bench.clock, no_secret)  # type: ignore[arg-type]
    return HostEngine(site, path / "here", runtime_plugin(runtime).make(path / "here", "here", bench.clock, settings))


def podman(bench: Bench, path: Path) -> Engine:
    """The Podman runtime over a service in memory, which outlives the engine."""
    service = SERVICES.setdefault(path, Libpod())
    settings = Settings("acme", (), path, host=HostSettings(termination_scale=0.002))
    site = EngineContext(bench.records, "here", settings, bench.clock, lambda key: None)  # type: ignore[arg-type, return-value]
    runtime = PodmanRuntime(path / "here", "here", bench.clock, path / "socket", service.transport())
    runtime.image_store = None  # every image is there, and no registry is asked
    return HostEngine(site, path / "here", runtime)


SERVICES: dict[Path, Libpod] = {}
RUNTIMES = sorted(path.parent.name for path in Path(runtimes.__file__).parent.glob("*/plugin.py"))
FACTORIES = {
    "recorded": Factory(recorded, FakeClock),
    "ledger": Factory(ledger, FakeClock),
    "host-process": Factory(partial(host, runtime="process"), SystemClock),
    "host-podman": Factory(podman, SystemClock),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_engines_keep_their_promises(promise: Callable[[Subject], None], name: str, tmp_path: Path) -> None:
    with subject_of(FACTORIES[name], tmp_path) as subject:
        promise(subject)


def test_every_runtime_keeps_the_promises_of_engines() -> None:
    assert {f"host-{name}" for name in RUNTIMES} <= FACTORIES.keys()


def test_the_settings_name_no_runtime_that_does_not_exist() -> None:
    location = load_schema("settings")["properties"]["locations"]["additionalProperties"]
    assert set(location["properties"]["runtime"]["enum"]) <= {*RUNTIMES, AUTO}
    assert LocationSettings("host").runtime in RUNTIMES
