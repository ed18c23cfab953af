"""A bug is contained where it is met: it is named by its place, logged once, and everything else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from reconciler.bugs import code_location, internal_error
from reconciler.daemon.loop import Daemon
from reconciler.daemon.secret_monitor import HostSecretMonitor
from reconciler.daemon.systemd import SystemdNotifier
from reconciler.model.record import Record
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.report import Report, decode_reports
from reconciler.pipeline.runner import Runner
from reconciler.reasons import ConditionType
from reconciler.records.store import FILE, Records
from reconciler.settings import load_settings
from reconciler.status import publisher
from reconciler.status.conditions import ResourceFacts
from tests.support.buggy import MARK, SECRET, forget_logged, raising_rule
from tests.support.clock import FakeClock
from tests.support.git import GitRepo
from tests.support.sandbox import GVC, DaemonSandbox, eventually, workload

BUGGY = workload("api", 7001, f"tags: {{test: {MARK}}}\n")
OTHER = {"other/gvc.yaml": GVC.replace("name: shop", "name: other"), "other/web.yaml": workload("web")}


class RunnerHarness:
    """Two sources, ``main`` (the shop) and ``other``, over one runner and a clock that a test pushes on."""

    def __init__(self, path: Path) -> None:
        self.sandbox = DaemonSandbox(path)
        self.other = GitRepo.create(path / "other.git", OTHER)
        self.sandbox.configure(sources=[self.sandbox.source(), self.sandbox.source("other")])
        self.clock = FakeClock()
        self.records = Records.open(self.sandbox.state / FILE, clock_now=self.clock.now)
        self.runner = Runner(load_settings(self.sandbox.settings_file), self.records, self.clock)

    def run(self, name: str = "main") -> Report:
        return asyncio.run(self.runner.run(name, "test"))

    def poll(self, name: str = "main") -> Report | None:
        return asyncio.run(self.runner.poll(name))

    def condition(self, kind: str = ConditionType.READY, name: str = "main") -> str:
        found = {each.type: each for each in self.records.conditions.get(name)}.get(kind)
        return f"{str(found.status).lower()} {found.reason}: {found.message}" if found else ""

    def events(self, *reasons: str) -> list[str]:
        return [
            f"{each.key} {each.reason}: {each.message}" for each in self.records.events.list() if each.reason in reasons
        ]

    def recorded(self) -> dict[str, Record]:
        return {f"{each.key}@{each.location}": each for each in self.records.applied.items()}

    def loop(self) -> Daemon:
        return Daemon(self.runner, self.clock, self.clock, SystemdNotifier({}))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RunnerHarness]:
    forget_logged()
    harness = RunnerHarness(tmp_path)
    yield harness
    harness.records.close()


def test_a_rule_that_raises_refuses_its_source_alone(harness: RunnerHarness) -> None:
    assert (harness.run().outcome, harness.run("other").outcome) == ("applied", "applied")
    before = harness.recorded()
    bad = harness.sandbox.repo.commit({"shop/api.yaml": BUGGY})
    harness.other.commit({"other/web.yaml": workload("web", 7002)})
    with raising_rule(), capture_logs() as logged:
        ended = harness.run()
        assert (ended.outcome, ended.reason, ended.good) == ("failed", "InternalError", False)
        assert harness.run("other").outcome == "applied"
        assert harness.condition() == f"false InternalError: {ended.message}"
        assert ended.message.startswith("KeyError at reconciler/manifests/rule_check.py:")
        assert harness.condition(ConditionType.SOURCE_REACHABLE).startswith("true")
        assert harness.events("InternalError") == [f"source/main InternalError: {ended.message}"]
        assert harness.run().outcome == "failed"
        [bug] = [each for each in logged if each["event"] == "bug"]
        assert (bug["error"], bug["part"], bug["revision"]) == ("KeyError", "source main", f"main@sha1:{bad}")
        assert "in check" in bug["traceback"]
        assert len(harness.events("InternalError")) == 1
    after = harness.recorded()
    assert after["workload/shop/api@here"] == before["workload/shop/api@here"], "the last good revision stays applied"
    assert after["workload/other/web@here"].version == 2
    assert SECRET not in str([logged, ended, harness.condition(), harness.records.events.list()])


def test_a_source_that_met_a_bug_is_tried_again_with_backoff_and_at_once_at_another_commit(
    harness: RunnerHarness,
) -> None:
    harness.run()
    harness.sandbox.repo.commit({"shop/api.yaml": BUGGY})
    with raising_rule():
        assert [report and report.outcome for report in (harness.poll(), harness.poll())] == ["failed", None]
        asyncio.run(harness.clock.advance(1.5))
        assert [report and report.outcome for report in (harness.poll(), harness.poll())] == ["failed", None]
        asyncio.run(harness.clock.advance(1.5))
        assert harness.poll() is None, "each wait is longer than the one before"
        asyncio.run(harness.clock.advance(1.5))
        assert (polled := harness.poll()) is not None
        assert polled.outcome == "failed"
        harness.sandbox.repo.commit({"shop/web.yaml": workload("web")})
        assert (polled := harness.poll()) is not None
        assert polled.outcome == "failed"
    asyncio.run(harness.clock.advance(1.5))
    assert (polled := harness.poll()) is not None
    assert polled.outcome == "applied"
    assert harness.condition() == "true Applied: "
    assert [event[:55] for event in harness.events("Recovered")] == [
        "source/main Recovered: over: InternalError: KeyError at"
    ]


def test_a_bug_after_the_plan_was_accepted_is_contained_as_well(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = harness.runner.pipelines["main"]

    def raise_bug(*_: object) -> None:
        raise KeyError(SECRET)

    with monkeypatch.context() as patched:
        patched.setattr(line, "_record_results", raise_bug)
        assert harness.run().reason == "InternalError"
    asyncio.run(harness.clock.advance(1.5))
    assert (found := harness.poll()) is not None
    assert (found.outcome, harness.condition()) == ("unchanged", "true Applied: ")
    assert harness.records.journal.open() == []


def test_a_bug_in_one_status_file_is_reported_and_the_others_are_written(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = publisher.resource_file

    def make(facts: ResourceFacts, *rest: Any) -> bytes:
        if facts.key.name == "api" and not rest:
            raise KeyError(SECRET)
        return whole(facts, *rest)

    monkeypatch.setattr(publisher, "resource_file", make)
    harness.run()
    assert harness.runner.flush("main")
    assert "InternalError" in harness.sandbox.status("shop/workload/api.yaml")
    assert "key: gvc/shop" in harness.sandbox.status("_org/gvc/shop.yaml")
    assert SECRET not in harness.sandbox.status("shop/workload/api.yaml")


def test_a_bug_in_writing_the_status_is_a_condition_and_is_tried_again(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_bug(*_: object) -> bytes:
        raise KeyError(SECRET)

    with monkeypatch.context() as patched:
        patched.setattr(publisher, "render_readme", raise_bug)
        harness.run()
        assert not harness.runner.flush("main")
        assert harness.condition(ConditionType.STATUS_PUSHED).startswith(
            "false InternalError: KeyError at reconciler/status/"
        )
    assert harness.runner.flush("main", force=True)
    assert harness.condition(ConditionType.STATUS_PUSHED).startswith("true Pushed")


class OneRound:
    """A daemon on the harness that works until all is quiet, and then ends."""

    def __init__(self, harness: RunnerHarness) -> None:
        self.daemon = harness.loop()
        self.clock = harness.clock

    async def until_quiet(self) -> None:
        running = asyncio.create_task(self.daemon.run())
        quiet = 0
        async with asyncio.timeout(60):
            # Between taking a wake-up and beginning its round a daemon seems to rest.
            while quiet < 5:
                await asyncio.sleep(0.01)
                quiet = quiet + 1 if self.daemon.watchdog._resting and not self.daemon.wakes.waiting() else 0
        self.daemon.stop.set()
        await running


@pytest.mark.parametrize("part", ["drift_monitor.check", "open", "next_attempt", "flush", "refresh_engines"])
def test_a_bug_in_another_part_of_a_round_leaves_the_sources_alone(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def raise_bug(*_: object, **__: object) -> None:
        raise KeyError(SECRET)

    *owner, name = part.split(".")
    monkeypatch.setattr(harness.runner.drift_monitor if owner else harness.runner, name, raise_bug)
    turn = OneRound(harness)
    turn.daemon.wakes.add(None, "refresh")
    with capture_logs() as logged:
        asyncio.run(turn.until_quiet())
    assert {text.split("@")[0] for text in harness.recorded()} == {
        "gvc/shop",
        "workload/shop/api",
        "gvc/other",
        "workload/other/web",
    }
    bugs = [(each["part"], each["error"]) for each in logged if each["event"] == "bug"]
    assert {error for _, error in bugs} == {"KeyError"}
    assert len(set(bugs)) == len(bugs) == len(harness.events("InternalError")), "each is logged once"
    assert SECRET not in str([logged, harness.records.events.list()])


def test_a_request_whose_run_meets_a_bug_gets_an_answer(harness: RunnerHarness) -> None:
    number = harness.records.requests.add("apply", {"plans": [{"nonsense": 1}]}, "ada")
    asyncio.run(OneRound(harness).until_quiet())
    request = harness.records.requests.get(number)
    assert request is not None
    assert request.result is not None
    assert {each.reason for each in decode_reports(request.result)} == {"InternalError"}


def test_a_bug_at_one_location_leaves_the_drift_of_the_others_to_be_seen(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reconciler.drift import monitor

    whole = monitor._compare_location

    def compare(settings: Any, records: Any, location: str, seen: Any, keys: Any) -> Any:
        if location == "here":
            raise KeyError(SECRET)
        return whole(settings, records, location, seen, keys)

    monkeypatch.setattr(monitor, "_compare_location", compare)
    for engine in harness.runner.drift_monitor.engines.values():
        monkeypatch.setattr(engine, "can_drift", True)
    harness.run()
    assert asyncio.run(harness.runner.drift_monitor.check()) == set()
    assert harness.runner.drift_monitor.unreachable["here"].startswith("InternalError: KeyError at reconciler/drift/")
    assert "there" not in harness.runner.drift_monitor.unreachable


def test_a_bug_in_watching_the_secrets_of_a_source_is_its_event_alone(harness: RunnerHarness) -> None:
    asked = []

    def raise_bug() -> DesiredStateView:
        raise KeyError(SECRET)

    def view() -> DesiredStateView:
        asked.append("other")
        return harness.runner.pipelines["other"].view()

    harness.run("other")
    monitor = HostSecretMonitor(harness.records, {"main": raise_bug, "other": view})
    assert (monitor.check(), monitor.check(), asked) == (set(), set(), ["other", "other"])
    [event] = harness.events("InternalError")
    assert event.startswith("source/main InternalError: its secrets on this host cannot be watched: KeyError at")


def test_a_rule_that_raises_leaves_a_whole_daemon_at_work(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    with sandbox.daemon("-m", "tests.daemon.daemon_with_bug") as running:
        eventually(lambda: len(sandbox.recorded()) == 3, "the shop is applied")
        sandbox.repo.commit({"shop/api.yaml": BUGGY})
        eventually(lambda: sandbox.condition("Ready") == "false InternalError", "the condition reports it")
        eventually(lambda: "InternalError" in sandbox.status("reconciler.yaml"), "the branch reports it")
        sandbox.repo.commit({"shop/api.yaml": workload("api", 7003)})
        eventually(lambda: sandbox.condition("Ready") == "true Applied", "it goes on")
        assert len(running.logged("bug")) == 1
        assert running.stop() == 0
    assert SECRET not in running.log_file.read_text()


def test_a_place_is_the_innermost_one_in_the_package() -> None:
    from reconciler.model.key import Key

    with pytest.raises(ValueError, match="nonsense") as met:
        Key.parse("nonsense")
    assert code_location(met.value).startswith("reconciler/model/key.py:")
    assert code_location(met.value).endswith(" in parse")
    assert str(internal_error(met.value)).startswith("ValueError at reconciler/model/key.py:")
