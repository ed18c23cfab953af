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
from tests.daemon.test_bugs import OneRound, RunnerHarness
from tests.support.sandbox import workload


@pytest.fixture
def harness(tmp_path: Path) -> RunnerHarness:
    harness = RunnerHarness(tmp_path)
    asyncio.run(OneRound(harness).until_quiet())
    return harness


def ask_for_plan(harness: RunnerHarness, name: str = "main") -> int:
    """A request for the plan of ``name``, by a command with the settings of the daemon; returns its number."""
    wanted = PlanRequest(settings_digest(harness.runner.settings), [name], "text", blame=False, colour=False)
    return harness.records.requests.add("plan", msgspec.to_builtins(wanted), "ada")


def answer(harness: RunnerHarness, number: int) -> Any:
    """The answer of the daemon, which works until all is quiet."""
    turn = OneRound(harness)
    turn.daemon.wakes.add("main", "ref")
    asyncio.run(turn.until_quiet())
    request = harness.records.requests.get(number)
    assert request is not None
    assert request.result is not None
    return request.result["plans"]


def commit(harness: RunnerHarness, port: int) -> str:
    return harness.sandbox.repo.commit({"shop/api.yaml": workload("api", port)})


def test_a_run_that_is_due_goes_before_a_plan(harness: RunnerHarness) -> None:
    number, newest = ask_for_plan(harness), commit(harness, 7001)
    (plan,) = answer(harness, number)
    assert newest[:12] in plan["shown"]
    assert "nothing to do" in plan["shown"]
    assert harness.sandbox.applied(newest)


@pytest.mark.parametrize("error", [CorruptRowError("applied", "workload/shop/api"), KeyError("shown"), OSError(5, "")])
def test_a_plan_that_fails_has_no_answer_and_delays_no_run(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(review, "render_plan", fail)
    number, newest = ask_for_plan(harness), commit(harness, 7002)
    assert answer(harness, number) is None
    assert harness.sandbox.applied(newest)


def test_a_plan_that_cannot_be_stored_has_no_answer(harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "render_plan", lambda *_, **__: RenderedPlan(0, False, "\ud800"))
    assert answer(harness, ask_for_plan(harness)) is None


@pytest.mark.parametrize("args", [{}, {"sources": ["main"]}, {"nonsense": 1}])
def test_a_request_without_sense_has_no_answer(harness: RunnerHarness, args: dict[str, Any]) -> None:
    assert answer(harness, harness.records.requests.add("plan", args, "ada")) is None


def test_a_source_that_the_daemon_does_not_have_has_no_answer(harness: RunnerHarness) -> None:
    assert answer(harness, ask_for_plan(harness, "unknown")) is None


def test_a_plan_that_no_command_waits_for_is_not_made(harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [ask_for_plan(harness) for _ in range(3)]
    whole = harness.records.requests.open
    plans: list[object] = []

    def open_then_abandon() -> list[Request]:
        requests = whole()
        for number in numbers[1:]:
            harness.records.requests.remove(number)
        return requests

    def render(*seen: object, **_: object) -> RenderedPlan:
        plans.append(seen)
        return RenderedPlan(0, False)

    monkeypatch.setattr(harness.records.requests, "open", open_then_abandon)
    monkeypatch.setattr(review, "render_plan", render)
    assert answer(harness, numbers[0]) is not None
    assert len(plans) == 1


def test_a_request_whose_command_was_killed_is_removed_by_a_later_one(harness: RunnerHarness) -> None:
    number = ask_for_plan(harness)
    harness.clock.jump(KEEP_PLAN_SECONDS + 1)
    later = ask_for_plan(harness)
    assert harness.records.requests.get(number) is None
    assert harness.records.requests.get(later) is not None
