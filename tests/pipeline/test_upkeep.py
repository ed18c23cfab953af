"""No work stays open for ever, and no data stays that is not needed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from reconciler.decode import fingerprint
from reconciler.engines.protocol import Outcome
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.errors import EngineError
from reconciler.model.record import Failure
from reconciler.pipeline import source_pipeline
from reconciler.pipeline.runner import Runner
from reconciler.pipeline.upkeep import due_upkeep, run_upkeep
from reconciler.planning.plan import Step
from reconciler.status.branch import branch
from tests.support.pipeline import BASE, PipelineHarness

GOOD = {"shop/gvc.yaml": BASE, "shop/i.yaml": "kind: identity\nname: good\n"}
BAD = "kind: identity\nname: bad\n"
DAY = 86400.0


class FailingEngine(RecordedEngine):
    """Fails every step of a resource called ``bad``."""

    async def perform(self, step: Step) -> Outcome:
        if step.key.name == "bad":
            raise EngineError("it does not like it")
        return await super().perform(step)


def picky(path: Path) -> PipelineHarness:
    """A pipeline whose engine fails some steps."""
    harness = PipelineHarness(path, GOOD)
    harness.engines[""] = FailingEngine(harness.records, "", harness.settings.org, "example.com", harness.clock)
    harness.applied()
    return harness


def test_a_failure_of_a_resource_that_is_no_longer_desired_is_forgotten(tmp_path: Path) -> None:
    harness = picky(tmp_path)
    harness.commit({"shop/bad.yaml": BAD})
    assert harness.apply().outcome == "failed"
    taken = harness.records.status_queue.take("main")
    harness.records.status_queue.clear("main", taken.keys, taken.upto)
    harness.commit({"shop/bad.yaml": None})
    harness.applied()
    assert harness.records.failures.count() == 0
    assert harness.records.status_queue.take("main").keys == ["identity/shop/bad"]
    asyncio.run(harness.clock.sleep(DAY))
    assert harness.has_nothing_to_do()


def test_a_clock_that_was_put_back_does_not_put_off_the_next_try(tmp_path: Path) -> None:
    harness = picky(tmp_path)
    harness.commit({"shop/bad.yaml": BAD})
    assert harness.apply().outcome == "failed"
    [failure] = harness.records.failures.all()
    now, cap = harness.clock.now(), harness.settings.retry.cap
    for due, idle in ((now - 1, False), (now + 1, True), (now + cap, True), (now + 365 * DAY, False)):
        _owe(harness, failure, due)
        assert harness.has_nothing_to_do() is idle, due - now


def _owe(harness: PipelineHarness, failure: Failure, due: float) -> None:
    harness.records.failures.put(msgspec.structs.replace(failure, next_attempt=due))


def test_unused_documents_leave_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_pipeline, "CACHE_SWEEP_EVERY_RUNS", 3)
    harness = PipelineHarness(tmp_path, GOOD)
    harness.applied()
    blobs = []
    for number in range(4):
        harness.commit({"shop/i.yaml": f"kind: identity\nname: good\ndescription: '{number}'\n"})
        harness.applied()
        blobs.append(harness.repo.git("rev-parse", f"{harness.branch}:shop/i.yaml"))
        if harness.records.documents.needs_sweep():
            harness.records.documents.sweep()
    assert harness.records.documents.get_many(blobs).keys() == set(blobs[3:])


def test_status_branches_are_packed_when_that_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch, "EVERY", 2)
    harness = PipelineHarness(tmp_path, GOOD)
    runner = Runner(harness.settings, harness.records, harness.clock)

    def write(number: int) -> None:
        harness.commit({"shop/i.yaml": f"kind: identity\nname: good\ndescription: '{number}'\n"})
        asyncio.run(runner.run("main", "test"))
        assert runner.flush("main", force=True)

    def packs() -> int:
        return len(list((harness.repo.path / "objects" / "pack").glob("*.pack")))

    write(1)
    assert list(due_upkeep(runner)) == []
    write(2)
    run_upkeep(due_upkeep(runner))
    assert packs() == 1
    assert list(due_upkeep(runner)) == []
    write(3)
    write(4)
    objects = harness.repo.path / "objects"
    objects.rename(tmp_path / "gone")
    with capture_logs() as logged:
        run_upkeep(due_upkeep(runner))
    assert [(each["event"], each["log_level"]) for each in logged] == [("upkeep", "warning")]
    (tmp_path / "gone").rename(objects)
    write(5)
    write(6)
    run_upkeep(due_upkeep(runner))
    assert packs() == 2


async def test_events_stay_bounded_though_nothing_comes_to_be_applied(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"a.yaml": "kind: ["})
    settings = msgspec.structs.replace(
        harness.settings, events=msgspec.structs.replace(harness.settings.events, keep=5)
    )
    runner = Runner(settings, harness.records, harness.clock)
    for number in range(10):
        harness.commit({"a.yaml": f"kind: [{number}"})
        assert (await runner.run("main", "test")).outcome == "refused"
        assert len(harness.records.events.list()) <= 5


def test_another_build_of_the_rules_checks_everything_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE, "shop/id.yaml": "kind: identity\nname: web\n"})
    harness.applied()
    assert harness.prepare().loaded.change_set.added == {}
    ours = fingerprint._fingerprint_build()
    monkeypatch.setattr(fingerprint, "_fingerprint_build", lambda: f"another than {ours}")
    assert harness.new_pipeline().plan_revision(keep_cache=True).loaded.change_set.documents == 2
    harness.records.documents.put_many([("0" * 40, b"no longer understood")])
    monkeypatch.undo()
    harness.new_pipeline().plan_revision(keep_cache=True)
    assert harness.records.documents.get_many(["0" * 40]) == {}


def test_a_build_has_one_fingerprint_in_every_process() -> None:
    asking = [
        sys.executable,
        "-c",
        "from reconciler.decode.fingerprint import _fingerprint_build; print(_fingerprint_build())",
    ]
    names = {subprocess.run(asking, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)}
    assert names == {fingerprint._fingerprint_build()}
