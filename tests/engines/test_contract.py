"""Every engine there is keeps what the contract promises."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from reconciler.clock import SystemClock
from reconciler.documents.schema.loader import load_schema
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host import runtimes
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.paths import find_directory
from reconciler.engines.host.reading.location import HostReader
from reconciler.engines.host.runtimes.plugins import AUTO, runtime_plugin
from reconciler.engines.host.runtimes.podman.runtime import PodmanRuntime
from reconciler.engines.plugin import find_plugin, list_engines
from reconciler.engines.recorded.plugin import RecordedReader
from reconciler.settings import HostSettings, LocationSettings, Settings
from tests.engines.contract import PROMISES, EngineHarness, EnginePair, Factory, subject_of
from tests.engines.host.runtimes.podman.libpod import Libpod
from tests.support.clock import FakeClock
from tests.support.draft import draft_engine
from tests.support.engines import LedgerEngine
from tests.support.host_sandbox import let_others_through
from tests.support.plans import ExecutorHarness


def no_secret(key: object) -> NoReturn:
    raise AssertionError(f"nothing here uses {key}")


def context_at(harness: ExecutorHarness, path: Path, engine: str) -> EngineContext:
    """The inputs of the engine of ``here``, whose state directory is ``path``."""
    host = HostSettings(termination_scale=0.002)
    # HAProxy is asked for its addresses only after the start, so a restart would show none for a moment.
    bound = LocationSettings(engine, dataplane="builtin")
    settings = Settings("acme", (), path, locations={"here": bound}, host=host)
    tables = harness.records if engine == "recorded" else None
    records = LocationRecords(harness.records, "here")
    return EngineContext(records, settings, harness.clock, no_secret, tables=tables)


def from_plugin(harness: ExecutorHarness, path: Path, name: str) -> EnginePair:
    """The engine and the reader that the plugin ``name`` makes."""
    context, plugin = context_at(harness, path, name), find_plugin(name)
    assert plugin is not None
    return EnginePair(plugin.make(context), plugin.make_reader(context.settings, "here"))


def draft(harness: ExecutorHarness, path: Path) -> EnginePair:
    with draft_engine():
        return from_plugin(harness, path, "draft")


def ledger(_bench: ExecutorHarness, path: Path) -> EnginePair:
    return EnginePair(LedgerEngine(path), RecordedReader("here", "ledger"))


def host(harness: ExecutorHarness, path: Path, runtime: str) -> EnginePair:
    let_others_through(path.parent)
    context, root = context_at(harness, path, "host"), find_directory(path, "here")
    made = runtime_plugin(runtime).make(root, "here", harness.clock, context.settings)
    return EnginePair(HostEngine(context, root, made), HostReader(context.settings, "here"))


def podman(harness: ExecutorHarness, path: Path) -> EnginePair:
    """The Podman runtime over a service in memory, which outlives the engine."""
    service, root = SERVICES.setdefault(path, Libpod()), find_directory(path, "here")
    context = context_at(harness, path, "host")
    runtime = PodmanRuntime(root, "here", harness.clock, path / "socket", service.transport())
    runtime.image_store = None  # every image is there, and no registry is asked
    return EnginePair(HostEngine(context, root, runtime), HostReader(context.settings, "here"))


SERVICES: dict[Path, Libpod] = {}
RUNTIMES = sorted(path.parent.name for path in Path(runtimes.__file__).parent.glob("*/plugin.py"))
FACTORIES = {
    "recorded": Factory(partial(from_plugin, name="recorded"), FakeClock),
    "draft": Factory(draft, FakeClock),
    "ledger": Factory(ledger, FakeClock),
    "host-process": Factory(partial(host, runtime="process"), SystemClock),
    "host-podman": Factory(podman, SystemClock),
}


IN_OTHER_FOLDERS = {"kubernetes"}
"""Engines whose tests are in a folder of their own, with this contract among them."""


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_engines_keep_their_promises(promise: Callable[[EngineHarness], None], name: str, tmp_path: Path) -> None:
    with subject_of(FACTORIES[name], tmp_path) as harness:
        promise(harness)


def test_every_engine_is_one_that_the_settings_name() -> None:
    location = load_schema("settings")["properties"]["locations"]["additionalProperties"]
    assert sorted(location["properties"]["engine"]["enum"]) == list(list_engines())
    assert {name.partition("-")[0] for name in FACTORIES} == {*list_engines(), "ledger", "draft"} - IN_OTHER_FOLDERS


def test_every_runtime_keeps_the_promises_of_engines() -> None:
    assert {f"host-{name}" for name in RUNTIMES} <= FACTORIES.keys()


def test_the_settings_name_no_runtime_that_does_not_exist() -> None:
    location = load_schema("settings")["properties"]["locations"]["additionalProperties"]
    assert set(location["properties"]["runtime"]["enum"]) <= {*RUNTIMES, AUTO}
    assert LocationSettings("host").runtime == AUTO
