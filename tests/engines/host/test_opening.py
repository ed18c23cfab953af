"""The engine takes up what there is once, however many steps come before it has."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.decisions.transitions import new_replica
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.runtimes.process.runtime import ProcessRuntime
from reconciler.engines.host.runtimes.protocol import ContainerId, OnEnd
from reconciler.engines.workload import reachability
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Options
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from reconciler.records.tables.journal import NewStep
from reconciler.settings import Settings
from tests.engines.host.cron.real import daemon, stored_output
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import HostHarness, played
from tests.engines.host.provisioning.kit import vault
from tests.support.plans import ExecutorHarness, step
from tests.support.waiting import until


class EndingRuntime(FakeRuntime):
    """One program ends when the engine has listed all that run, and controls none of them yet."""

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """End the program, and let the engine look for what has ended."""
        for place in self._programs.places():
            self._programs.end(place, 1)
        for _ in range(5):
            await asyncio.sleep(0)


def test_a_program_that_ends_while_the_engine_opens_is_missed_and_restarted(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.apply(1)
        await host.engine.close()
        host._runtime = EndingRuntime
        host.engine = host._made()
        await host.engine.open()
        await host.until(lambda found: [each.containers[0].restarts for each in found if each.ready] == [1])

    played(tmp_path, story)


class CountingRuntime(ProcessRuntime):
    """Knows how often it was opened."""

    opened = 0

    async def open(self, on_end: OnEnd) -> None:
        self.opened += 1
        await super().open(on_end)


async def test_steps_at_a_time_open_it_once(tmp_path: Path) -> None:
    records = Records.open(tmp_path / FILE)
    runtime = CountingRuntime(tmp_path / "here", "here", SystemClock())
    context = EngineContext(LocationRecords(records, "here"), Settings("acme", (), tmp_path), SystemClock(), vault({}))
    engine = HostEngine(context, tmp_path / "here", runtime)
    try:
        await asyncio.gather(engine.open(), engine.open(), engine.open())
        assert runtime.opened == 1
    finally:
        await engine.close()
        records.close()


class SilentRuntime(CountingRuntime):
    """Waits in vain for an answer, until ``answers``."""

    answers = False

    async def open(self, on_end: OnEnd) -> None:
        if not self.answers:
            self.opened += 1
            await asyncio.sleep(0.3)
            raise EngineError("it does not answer", reason=Reason.RUNTIME_UNAVAILABLE)
        await super().open(on_end)


async def test_steps_wait_once_for_a_runtime_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(reachability, "FIRST_PAUSE", 30.0)
    records = Records.open(tmp_path / FILE)
    runtime = SilentRuntime(tmp_path / "here", "here", SystemClock())
    context = EngineContext(LocationRecords(records, "here"), Settings("acme", (), tmp_path), SystemClock(), vault({}))
    engine = HostEngine(context, tmp_path / "here", runtime)
    try:
        at_once = [engine.perform(step("workload/shop/web")) for _ in range(20)]
        failed = await asyncio.gather(*at_once, return_exceptions=True)
        assert [str(error) for error in failed] == ["it does not answer"] * 20
        with pytest.raises(EngineError, match="it does not answer"):
            await engine.observe()
        assert runtime.opened == 1, "the first one has waited for all"
        await engine.close()
        monkeypatch.setattr(reachability, "FIRST_PAUSE", 0.1)
        with pytest.raises(EngineError, match="it does not answer"):
            await engine.open()
        runtime.answers = True
        await until(lambda: engine.location.works, "it is opened without a step")
    finally:
        await engine.close()
        records.close()


async def test_a_location_that_is_another_engines_now_keeps_nothing_for_a_step_of_that_one(tmp_path: Path) -> None:
    key = Key(Kind.WORKLOAD, "shop", "web")
    records = Records.open(tmp_path / FILE)
    records.journal.begin(1, [NewStep(key, "here", "update", b"")])
    wanted = WorkloadSpec(key, Type.STANDARD, 1, "digest", "hash", 1, (ContainerSpec("main"),), Options())
    store = ReplicaStore(tmp_path / "here" / "replicas")
    store.save(new_replica(wanted, -1, "web-1", 1.0, ""))
    runtime = ProcessRuntime(tmp_path / "here", "here", SystemClock())
    context = EngineContext(
        LocationRecords(records, "here"),
        Settings("acme", (), tmp_path),
        SystemClock(),
        vault({}),
        decommissioning=True,
    )
    engine = HostEngine(context, tmp_path / "here", runtime)
    try:
        await engine.open()
        await until(lambda: store.load() == ([], []), "the end of the replica")
    finally:
        await engine.close()
        records.close()


async def test_the_output_of_replicas_of_an_earlier_boot_is_stored_before_they_are_removed(tmp_path: Path) -> None:
    key, root = Key(Kind.WORKLOAD, "shop", "web"), tmp_path / "here"
    harness = ExecutorHarness(tmp_path, SystemClock())
    spec = WorkloadSpec(key, Type.STANDARD, 1, "digest", "hash", 1, (ContainerSpec("main"),), Options())
    earlier = ReplicaStore(root / "replicas")
    earlier.boot = "earlier"
    earlier.save(new_replica(spec, -1, "web-1", 1.0, ""))
    for replica in ("web-1", "web-2"):
        output = ProcessRuntime(root, "here", SystemClock()).output(ContainerId(key, replica, "main"))
        output.parent.mkdir(parents=True)
        output.write_text(f"the power fails under {replica}\n")
    for _ in range(2):
        async with daemon(harness, tmp_path, ProcessRuntime(root, "here", SystemClock())):
            assert not output.exists()
    assert sorted(stored_output(tmp_path)) == [f"the power fails under web-{number}" for number in (1, 2)]
    harness.records.close()


class InterruptedRuntime(FakeRuntime):
    """Fails once after it was opened; ``opens`` are the changes of how often it is open."""

    fail = False
    opens: ClassVar[list[int]] = []

    async def open(self, on_end: OnEnd) -> None:
        self.opens.append(1)
        await super().open(on_end)

    async def close(self) -> None:
        self.opens.append(-1)
        await super().close()

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        if InterruptedRuntime.fail:
            InterruptedRuntime.fail = False
            raise EngineError("it does not answer", reason=Reason.RUNTIME_UNAVAILABLE)


def test_an_engine_that_fails_to_open_is_closed_and_opens_later(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.apply(1)
        await host.engine.close()
        host.engine = host._made()
        InterruptedRuntime.fail, InterruptedRuntime.opens = True, []
        with pytest.raises(EngineError):
            await host.engine.open()
        assert InterruptedRuntime.opens == [1, -1]
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("keep ")]
        await host.engine.observe()
        assert InterruptedRuntime.opens == [1, -1, 1], "the next observation opens it again"
        await host.time.advance(60.0)
        assert len(host.programs.places()) == 1
        assert [each.verb for each in host.programs.calls] == ["start"]
        counts = host.engine.replica_counts()
        assert (counts.running, counts.wanted) == (1, 1)

    played(tmp_path, story, InterruptedRuntime)
