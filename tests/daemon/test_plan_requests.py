"""Plans that commands request from the daemon: runs go first, and no plan holds up a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.errors import CorruptRowError
from reconciler.records.tables.requests import KEEP_PLAN_SECONDS, Request
from reconciler.render.plan import review
from reconciler.render.plan.rendered import PlanRequest, RenderedPlan
from reconciler.settings import settings_digest
from tests.daemon.test_bugs import OneRound, Stage
from tests.support.sandbox import workload


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    asyncio.run(OneRound(stage).until_quiet())
    return stage


def ask_for_plan(stage: Stage, name: str = "main") -> int:
    """A request for the plan of ``name``, by a command with the settings of the daemon; returns its number."""
    wanted = PlanRequest(settings_digest(stage.runner.settings), [name], "text", blame=False, colour=False)
    return stage.records.requests.add("plan", msgspec.to_builtins(wanted), "ada")


def answer(stage: Stage, number: int) -> Any:
    """The answer of the daemon, which works until all is quiet."""
    turn = OneRound(stage)
    turn.daemon.wakes.add("main", "ref")
    asyncio.run(turn.until_quiet())
    request = stage.records.requests.get(number)
    assert request is not None
    assert request.result is not None
    return request.result["plans"]


def commit(stage: Stage, port: int) -> str:
    return stage.site.repo.commit({"shop/api.yaml": workload("api", port)})


def test_a_run_that_is_due_goes_before_a_plan(stage: Stage) -> None:
    number, newest = ask_for_plan(stage), commit(stage, 7001)
    (plan,) = answer(stage, number)
    assert newest in plan["shown"]
    assert "nothing to do" in plan["shown"]
    assert stage.site.applied(newest)


@pytest.mark.parametrize("error", [CorruptRowError("applied", "workload/shop/api"), KeyError("shown"), OSError(5, "")])
def test_a_plan_that_fails_has_no_answer_and_delays_no_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(review, "render_plan", fail)
    number, newest = ask_for_plan(stage), commit(stage, 7002)
    assert answer(stage, number) is None
    assert stage.site.applied(newest)


def test_a_plan_that_cannot_be_stored_has_no_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "render_plan", lambda *_, **__: RenderedPlan(0, False, "\ud800"))
    assert answer(stage, ask_for_plan(stage)) is None


@pytest.mark.parametrize("args", [{}, {"sources": ["main"]}, {"nonsense": 1}])
def test_a_request_without_sense_has_no_answer(stage: Stage, args: dict[str, Any]) -> None:
    assert answer(stage, stage.records.requests.add("plan", args, "ada")) is None


def test_a_source_that_the_daemon_does_not_have_has_no_answer(stage: Stage) -> None:
    assert answer(stage, ask_for_plan(stage, "unknown")) is None


def test_a_plan_that_no_command_waits_for_is_not_made(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [ask_for_plan(stage) for _ in range(3)]
    whole = stage.records.requests.open
    made: list[object] = []

    def open_then_abandon() -> list[Request]:
        found = whole()
        for number in numbers[1:]:
            stage.records.requests.remove(number)
        return found

    def render(*seen: object, **_: object) -> RenderedPlan:
        made.append(seen)
        return RenderedPlan(0, False)

    monkeypatch.setattr(stage.records.requests, "open", open_then_abandon)
    monkeypatch.setattr(review, "render_plan", render)
    assert answer(stage, numbers[0]) is not None
    assert len(made) == 1


def test_a_request_whose_command_was_killed_is_removed_by_a_later_one(stage: Stage) -> None:
    number = ask_for_plan(stage)
    stage.clock.jump(KEEP_PLAN_SECONDS + 1)
    later = ask_for_plan(stage)
    assert stage.records.requests.get(number) is None
    assert stage.records.requests.get(later) is not None
