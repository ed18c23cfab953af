"""What a run leaves for the next poll, as values."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.pipeline.source_state import MOST_PENDING, CrashBackoff, SourceState
from reconciler.settings import RetrySettings
from tests.support.pipeline import BASE, PipelineHarness

RETRY = RetrySettings(base=10.0, cap=300.0)
IDENTITY = "kind: identity\nname: a\ngvc: shop\n"


def test_planning_changes_no_state_but_the_one_that_it_returns(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE, "shop/a.yaml": IDENTITY})
    before = SourceState()
    revision = harness.pipeline.current_revision()
    first = harness.pipeline.plan_current(revision, before)
    assert before == SourceState()
    assert first.state == SourceState(revision, frozenset())
    assert harness.pipeline.plan_current(revision, before).state == first.state


def test_a_run_that_ends_between_two_steps_leaves_all_it_planned_and_all_that_was_open(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE, "shop/a.yaml": IDENTITY})
    plan = harness.plan()
    cut = SourceState(pending_keys=frozenset({"identity/shop/old"})).before_steps(plan)
    assert cut.pending_keys == {"identity/shop/old", "identity/shop/a", "gvc/shop"}
    assert cut.must_repoll
    assert SourceState().before_steps(plan).pending_keys is None
    large = msgspec.structs.replace(plan, steps=plan.steps * MOST_PENDING)
    assert SourceState(pending_keys=frozenset()).before_steps(large).pending_keys is None
    harness.applied()
    assert (harness.state.pending_keys, harness.state.must_repoll) == (frozenset(), False)


def test_a_bug_makes_everything_pending_and_holds_back_its_commit_only(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE})
    harness.applied()
    crashed = harness.state.after_crash(100.0, RETRY)
    assert crashed.pending_keys is None
    commit = harness.pipeline.current_revision().commit
    assert crashed.crashes.holds_back(commit, 100.0)
    assert not crashed.crashes.holds_back("another", 100.0)
    again = crashed.after_crash(200.0, RETRY)
    assert again.crashes.tries == 2
    assert not again.crashes.holds_back(commit, again.crashes.until)
    assert msgspec.structs.replace(again, crashes=CrashBackoff()) == harness.state.with_all_pending()
