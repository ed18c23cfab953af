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
from tests.support.sandbox import GVC, Site, eventually, workload

BUGGY = workload("api", 7001, f"tags: {{test: {MARK}}}\n")
OTHER = {"other/gvc.yaml": GVC.replace("name: shop", "name: other"), "other/web.yaml": workload("web")}


class Stage:
    """Two sources, ``main`` (the shop) and ``other``, over one runner and a clock that a test pushes on."""

    def __init__(self, path: Path) -> None:
        self.site = Site(path)
        self.other = GitRepo.create(path / "other.git", OTHER)
        self.site.configure(sources=[self.site.source(), self.site.source("other")])
        self.clock = FakeClock()
        self.records = Records.open(self.site.state / FILE, clock_now=self.clock.now)
        self.runner = Runner(load_settings(self.site.settings_file), self.records, self.clock)

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
def stage(tmp_path: Path) -> Iterator[Stage]:
    forget_logged()
    stage = Stage(tmp_path)
    yield stage
    stage.records.close()


def test_a_rule_that_raises_refuses_its_source_alone(stage: Stage) -> None:
    assert (stage.run().outcome, stage.run("other").outcome) == ("applied", "applied")
    before = stage.recorded()
    bad = stage.site.repo.commit({"shop/api.yaml": BUGGY})
    stage.other.commit({"other/web.yaml": workload("web", 7002)})
    with raising_rule(), capture_logs() as logged:
        ended = stage.run()
        assert (ended.outcome, ended.reason, ended.good) == ("failed", "InternalError", False)
        assert stage.run("other").outcome == "applied"
        assert stage.condition() == f"false InternalError: {ended.message}"
        assert ended.message.startswith("KeyError at reconciler/manifests/rule_check.py:")
        assert stage.condition(ConditionType.SOURCE_REACHABLE).startswith("true")
        assert stage.events("InternalError") == [f"source/main InternalError: {ended.message}"]
        assert stage.run().outcome == "failed"
        [bug] = [each for each in logged if each["event"] == "bug"]
        assert (bug["error"], bug["part"], bug["revision"]) == ("KeyError", "source main", f"main@sha1:{bad}")
        assert "in check" in bug["traceback"]
        assert len(stage.events("InternalError")) == 1
    after = stage.recorded()
    assert after["workload/shop/api@here"] == before["workload/shop/api@here"], "the last good revision stays applied"
    assert after["workload/other/web@here"].version == 2
    assert SECRET not in str([logged, ended, stage.condition(), stage.records.events.list()])


def test_a_source_that_met_a_bug_is_tried_again_with_backoff_and_at_once_at_another_commit(stage: Stage) -> None:
    stage.run()
    stage.site.repo.commit({"shop/api.yaml": BUGGY})
    with raising_rule():
        assert [each and each.outcome for each in (stage.poll(), stage.poll())] == ["failed", None]
        asyncio.run(stage.clock.advance(1.5))
        assert [each and each.outcome for each in (stage.poll(), stage.poll())] == ["failed", None]
        asyncio.run(stage.clock.advance(1.5))
        assert stage.poll() is None, "each wait is longer than the one before"
        asyncio.run(stage.clock.advance(1.5))
        assert (found := stage.poll()) is not None
        assert found.outcome == "failed"
        stage.site.repo.commit({"shop/web.yaml": workload("web")})
        assert (found := stage.poll()) is not None
        assert found.outcome == "failed"
    asyncio.run(stage.clock.advance(1.5))
    assert (found := stage.poll()) is not None
    assert found.outcome == "applied"
    assert stage.condition() == "true Applied: "
    assert [each[:55] for each in stage.events("Recovered")] == [
        "source/main Recovered: over: InternalError: KeyError at"
    ]


def test_a_bug_after_the_plan_was_accepted_is_contained_as_well(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    line = stage.runner.pipelines["main"]

    def raise_bug(*_: object) -> None:
        raise KeyError(SECRET)

    with monkeypatch.context() as patched:
        patched.setattr(line, "_record_results", raise_bug)
        assert stage.run().reason == "InternalError"
    asyncio.run(stage.clock.advance(1.5))
    assert (found := stage.poll()) is not None
    assert (found.outcome, stage.condition()) == ("unchanged", "true Applied: ")
    assert stage.records.journal.open() == []


def test_a_bug_in_one_status_file_is_reported_and_the_others_are_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = publisher.resource_file

    def make(facts: ResourceFacts, *rest: Any) -> bytes:
        if facts.key.name == "api" and not rest:
            raise KeyError(SECRET)
        return whole(facts, *rest)

    monkeypatch.setattr(publisher, "resource_file", make)
    stage.run()
    assert stage.runner.flush("main")
    assert "InternalError" in stage.site.status("shop/workload/api.yaml")
    assert "key: gvc/shop" in stage.site.status("_org/gvc/shop.yaml")
    assert SECRET not in stage.site.status("shop/workload/api.yaml")


def test_a_bug_in_writing_the_status_is_a_condition_and_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_bug(*_: object) -> bytes:
        raise KeyError(SECRET)

    with monkeypatch.context() as patched:
        patched.setattr(publisher, "render_readme", raise_bug)
        stage.run()
        assert not stage.runner.flush("main")
        assert stage.condition(ConditionType.STATUS_PUSHED).startswith(
            "false InternalError: KeyError at reconciler/status/"
        )
    assert stage.runner.flush("main", force=True)
    assert stage.condition(ConditionType.STATUS_PUSHED).startswith("true Pushed")


class OneRound:
    """A daemon on the stage that works until all is quiet, and then ends."""

    def __init__(self, stage: Stage) -> None:
        self.daemon = stage.loop()
        self.clock = stage.clock

    async def until_quiet(self) -> None:
        running = asyncio.create_task(self.daemon.run())
        quiet = 0
        async with asyncio.timeout(20):
            # Between taking a wake-up and beginning its round a daemon seems to rest.
            while quiet < 5:
                await asyncio.sleep(0.01)
                quiet = quiet + 1 if self.daemon.watchdog._resting and not self.daemon.wakes.waiting() else 0
        self.daemon.stop.set()
        await running


@pytest.mark.parametrize("part", ["drift_monitor.check", "open", "next_attempt", "flush", "refresh_engines"])
def test_a_bug_in_another_part_of_a_round_leaves_the_sources_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def raise_bug(*_: object, **__: object) -> None:
        raise KeyError(SECRET)

    *owner, name = part.split(".")
    monkeypatch.setattr(stage.runner.drift_monitor if owner else stage.runner, name, raise_bug)
    turn = OneRound(stage)
    turn.daemon.wakes.add(None, "refresh")
    with capture_logs() as logged:
        asyncio.run(turn.until_quiet())
    assert {each.split("@")[0] for each in stage.recorded()} == {
        "gvc/shop",
        "workload/shop/api",
        "gvc/other",
        "workload/other/web",
    }
    bugs = [(each["part"], each["error"]) for each in logged if each["event"] == "bug"]
    assert {error for _, error in bugs} == {"KeyError"}
    assert len(set(bugs)) == len(bugs) == len(stage.events("InternalError")), "each is logged once"
    assert SECRET not in str([logged, stage.records.events.list()])


def test_a_request_whose_run_meets_a_bug_gets_an_answer(stage: Stage) -> None:
    number = stage.records.requests.add("apply", {"plans": [{"nonsense": 1}]}, "ada")
    asyncio.run(OneRound(stage).until_quiet())
    request = stage.records.requests.get(number)
    assert request is not None
    assert request.result is not None
    assert {each.reason for each in decode_reports(request.result)} == {"InternalError"}


def test_a_bug_at_one_location_leaves_the_drift_of_the_others_to_be_seen(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reconciler.drift import monitor

    whole = monitor._compare_location

    def compare(settings: Any, records: Any, place: str, seen: Any, keys: Any) -> Any:
        if place == "here":
            raise KeyError(SECRET)
        return whole(settings, records, place, seen, keys)

    monkeypatch.setattr(monitor, "_compare_location", compare)
    for engine in stage.runner.drift_monitor.engines.values():
        monkeypatch.setattr(engine, "can_drift", True)
    stage.run()
    assert asyncio.run(stage.runner.drift_monitor.check()) == set()
    assert stage.runner.drift_monitor.unreachable["here"].startswith("InternalError: KeyError at reconciler/drift/")
    assert "there" not in stage.runner.drift_monitor.unreachable


def test_a_bug_in_watching_the_secrets_of_a_source_is_its_event_alone(stage: Stage) -> None:
    asked = []

    def raise_bug() -> DesiredStateView:
        raise KeyError(SECRET)

    def view() -> DesiredStateView:
        asked.append("other")
        return stage.runner.pipelines["other"].view()

    stage.run("other")
    monitor = HostSecretMonitor(stage.records, {"main": raise_bug, "other": view})
    assert (monitor.check(), monitor.check(), asked) == (set(), set(), ["other", "other"])
    [event] = stage.events("InternalError")
    assert event.startswith("source/main InternalError: its secrets on this host cannot be watched: KeyError at")


def test_a_rule_that_raises_leaves_a_whole_daemon_at_work(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.daemon("-m", "tests.daemon.daemon_with_bug") as running:
        eventually(lambda: len(site.recorded()) == 3, "the shop is applied")
        site.repo.commit({"shop/api.yaml": BUGGY})
        eventually(lambda: site.condition("Ready") == "false InternalError", "the condition reports it")
        eventually(lambda: "InternalError" in site.status("reconciler.yaml"), "the branch reports it")
        site.repo.commit({"shop/api.yaml": workload("api", 7003)})
        eventually(lambda: site.condition("Ready") == "true Applied", "it goes on")
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
