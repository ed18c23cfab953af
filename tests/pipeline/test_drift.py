"""Changes behind the program's back are detected, reported and healed, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.engines.protocol import Observation
from reconciler.errors import EngineError
from reconciler.model.drift_policy import DriftPolicy, Ignore
from reconciler.model.key import Key
from reconciler.model.record import Failure
from reconciler.reasons import Reason
from reconciler.settings import LocationSettings
from tests.pipeline.drift_harness import KEY, SHOP, WEB, DriftHarness
from tests.support.pipeline import placed

READY = "Ready True Recorded"


def test_a_resource_as_applied_is_not_touched(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    assert harness.check() == set()
    assert (harness.differs(), harness.plan().steps, harness.conditions()) == ([], (), [READY])
    assert harness.records.drifts.last_checked_at() == harness.clock.now()


def test_a_deleted_deployment_is_restored_in_the_same_version(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    harness.applied()
    before = harness.recorded(), harness.ledger.resources()
    harness.ledger.meddle(KEY)
    assert harness.check() == {"main"}
    assert harness.differs() == [f"{KEY} missing at here"]
    assert harness.conditions() == ["Ready False Drifted", "Reconciling True Drifted"]
    steps = harness.plan().steps
    assert [(step.action, placed(step), step.version, step.heals) for step in steps] == [
        ("create", f"{KEY}@here", 2, True)
    ]
    harness.applied()
    after = {name: msgspec.structs.replace(record, applied_at=0.0) for name, record in harness.recorded().items()}
    assert after == {name: msgspec.structs.replace(record, applied_at=0.0) for name, record in before[0].items()}
    assert harness.ledger.resources() == before[1]
    assert (harness.check(), harness.differs(), harness.plan().steps, harness.conditions()) == (set(), [], (), [READY])
    assert harness.events("DriftDetected", "DriftHealed") == [f"DriftDetected {KEY}", f"DriftHealed {KEY}"]


def test_a_changed_field_is_brought_back(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.another_image()
    assert harness.check() == {"main"}
    [step] = harness.plan().steps
    [change] = step.changes
    assert (step.action, step.version) == ("update", 1)
    assert (change.path, change.before, change.after) == ("spec.containers[main].image", "nginx:9", "nginx:1")
    harness.applied()
    assert harness.ledger.performed() == [f"create {KEY}", f"update {KEY}"]
    assert harness.check() == set()


def test_a_version_that_is_not_the_recorded_one_is_brought_back(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.ledger.meddle(KEY, version=7)
    assert harness.check() == {"main"}
    harness.applied()
    assert harness.ledger.resources()[KEY]["version"] == 1


def test_drift_is_reported_once_and_detected_again_after_a_restart(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.another_image()
    harness.check()
    harness.monitor, harness.pipeline = harness.new_monitor(), harness.new_pipeline()
    assert harness.check() == {"main"}
    assert harness.events("DriftDetected") == [f"DriftDetected {KEY}"]
    harness.another_image("nginx:8")
    harness.ledger.meddle("workload/shop/none")
    harness.check()
    assert len(harness.events("DriftDetected")) == 2
    harness.applied()
    assert harness.check() == set()


def test_drift_that_resolves_itself_is_reported_too(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    resources = harness.ledger.resources()[KEY]
    harness.ledger.meddle(KEY)
    harness.check()
    harness.ledger.meddle(KEY, **resources)
    assert harness.check() == set()
    assert (harness.differs(), harness.plan().steps) == ([], ())
    assert harness.events("DriftResolved", "DriftHealed") == [f"DriftResolved {KEY}"]


def test_a_change_on_its_way_is_no_drift(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    harness.ledger.refuse.add(KEY)
    assert harness.apply().outcome == "failed"
    harness.another_image("nginx:2")
    assert (harness.check(), harness.differs()) == (set(), [])


def test_a_new_revision_takes_a_drift_with_it(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.another_image()
    harness.check()
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    [here, there] = harness.plan().steps
    assert (here.heals, here.version, there.version) == (False, 2, 2)
    harness.applied()
    assert (harness.differs(), harness.events("DriftHealed")) == ([], [])


def test_a_location_that_does_not_answer_shows_no_drift(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.another_image()
    harness.check()

    async def silent() -> list[Observation]:
        raise EngineError("no route", reason=Reason.EXEC_FAILED)

    seeing, harness.ledger.observe = harness.ledger.observe, silent  # type: ignore[method-assign]
    harness.check()
    harness.check()
    assert harness.monitor.unreachable == {"here": "ExecFailed: no route"}
    assert harness.differs() == [f"{KEY} changed at here: spec.containers[main].image"]
    assert harness.events("LocationUnreachable", "LocationReachable") == ["LocationUnreachable location/here"]
    harness.ledger.observe = seeing  # type: ignore[method-assign]
    harness.check()
    assert harness.events("LocationUnreachable", "LocationReachable") == [
        "LocationUnreachable location/here",
        "LocationReachable location/here",
    ]


def test_what_runs_at_a_location_that_stays_silent_is_unknown_until_it_answers_again(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    healthy = {
        "health": "Healthy",
        "state": '{"status": {"ready": true, "message": ""}, "workload": {"health": "Healthy"}}',
    }
    harness.ledger.meddle(KEY, **{**harness.ledger.resources()[KEY], **healthy})
    harness.check()

    def seen() -> tuple[str, bytes]:
        record = harness.recorded()[f"{KEY}@here"]
        return str(record.health), record.state

    async def silent() -> list[Observation]:
        raise EngineError("no route", reason=Reason.EXEC_FAILED)

    seeing, harness.ledger.observe = harness.ledger.observe, silent  # type: ignore[method-assign]
    before = seen()
    assert before[0] == "Healthy"
    harness.check()
    assert seen() == before, "one failure says nothing about what was there a moment ago"
    harness.check()
    health, state = seen()
    status = msgspec.json.decode(state)
    assert (health, status["status"]["ready"], status["workload"]["health"]) == ("Unknown", False, "Unknown")
    assert status["status"]["message"] == "the location cannot be observed: ExecFailed: no route"
    assert harness.monitor.health_changed
    harness.check()
    assert not harness.monitor.health_changed, "it is written once"
    harness.monitor = harness.new_monitor()
    harness.ledger.observe = seeing  # type: ignore[method-assign]
    harness.check()
    assert seen() == before
    harness.monitor, harness.ledger.observe = harness.new_monitor(), silent  # type: ignore[method-assign]
    harness.check()
    assert seen()[0] == "Unknown", "nothing was observed since the daemon began"
    harness.ledger.observe = seeing  # type: ignore[method-assign]
    harness.check()
    assert (seen(), harness.events("Healthy")) == (before, []), "its return is one event"


def test_a_bug_in_looking_is_named_and_its_text_is_not(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()

    async def broken() -> list[Observation]:
        raise KeyError("what a secret text")

    harness.ledger.observe = broken  # type: ignore[method-assign]
    assert harness.check() == set()
    assert harness.monitor.unreachable["here"].startswith("InternalError: KeyError at reconciler/drift/monitor.py:")
    assert harness.records.drifts.last_checked_at() is None


def test_an_unknown_resource_with_our_label_is_reported_and_not_touched(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.ledger.meddle("workload/shop/old", digest="x")
    assert (harness.check(), harness.differs()) == (set(), []), "before the source is read its owner is unknown"
    harness.applied()
    assert harness.check() == set()
    assert harness.differs() == ["workload/shop/old unexpected at here"]
    harness.applied()
    assert "workload/shop/old" in harness.ledger.resources()
    harness.commit({"shop/old.yaml": WEB.replace("web", "old")})
    harness.applied()
    assert (harness.check(), harness.differs()) == (set(), [])


def test_a_drift_conflict_stops_healing_and_is_reported_once(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path, drift=DriftPolicy(most_heals=2))
    harness.applied()
    for _ in range(2):
        harness.another_image()
        assert harness.check() == {"main"}
        harness.applied()
    harness.another_image()
    assert (harness.check(), harness.check(), harness.plan().steps) == (set(), set(), ())
    assert harness.events("DriftConflict") == [f"DriftConflict {KEY}"]
    assert harness.conditions() == ["Ready False DriftConflict", "Stalled True DriftConflict"]
    harness.clock._passed += 7200  # time alone does not resume healing
    assert (harness.check(), harness.new_pipeline().plan_revision().plan.steps) == (set(), ())  # type: ignore[union-attr]


def test_retry_takes_a_fight_up_again(tmp_path: Path) -> None:
    harness = _fought(tmp_path)
    assert harness.operations().retry(Key.parse(KEY)) == f"{KEY} is retried"
    assert len(harness.plan().steps) == 1
    harness.applied()
    assert (harness.check(), harness.conditions()) == (set(), [READY])


def test_a_new_revision_takes_a_fight_up_again(tmp_path: Path) -> None:
    harness = _fought(tmp_path)
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    harness.applied()
    assert (harness.check(), harness.conditions()) == (set(), [READY])
    harness.another_image()
    assert harness.check() == {"main"}


def test_heals_an_hour_apart_are_no_fight(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path, drift=DriftPolicy(most_heals=1))
    harness.applied()
    for _ in range(3):
        harness.another_image()
        assert harness.check() == {"main"}
        harness.applied()
        harness.clock._passed += 3601


def _fought(path: Path) -> DriftHarness:
    harness = DriftHarness(path, drift=DriftPolicy(most_heals=1))
    harness.applied()
    harness.another_image()
    harness.check()
    harness.applied()
    harness.another_image()
    assert harness.check() == set()
    return harness


def test_drift_is_reported_also_without_healing(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path, drift=DriftPolicy(heal=False))
    harness.applied()
    harness.another_image()
    assert (harness.check(), harness.plan().steps) == (set(), ())
    assert (harness.events("DriftDetected"), harness.conditions()) == (
        [f"DriftDetected {KEY}"],
        ["Ready False Drifted"],
    )


@pytest.mark.parametrize("how", ["settings", "tag"])
def test_ignored_fields_are_left_to_others(tmp_path: Path, how: str) -> None:
    path = "spec.containers[*].image"
    tag = f'tags: {{reconciler/ignore: "{path}"}}\nspec:'
    files = SHOP if how == "settings" else {**SHOP, "shop/web.yaml": WEB.replace("spec:", tag)}
    rules = (Ignore("workload/*", path),) if how == "settings" else ()
    harness = DriftHarness(tmp_path, files, drift=DriftPolicy(ignore=rules))
    harness.applied()
    harness.another_image()
    assert (harness.check(), harness.differs(), harness.conditions()) == (set(), [], [READY])
    harness.ledger.meddle(KEY)
    assert harness.check() == {"main"}


def test_a_suspended_resource_is_left_as_it_is_until_it_is_resumed(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.operations().suspend(KEY, "debugging", None)
    harness.another_image()
    assert harness.check() == set()
    assert harness.apply().outcome == "waiting"
    assert harness.conditions() == ["Ready False Suspended", "Reconciling True Suspended", "Suspended True Suspended"]
    harness.operations().resume(KEY)
    harness.applied()
    assert (harness.check(), harness.conditions()) == (set(), [READY])


def test_a_source_that_was_rolled_back_is_healed_towards_its_pin(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    first = harness.repo.git("rev-parse", harness.branch)
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    harness.applied()
    operations = harness.operations()
    operations.rollback(operations.rollback_target("main", first), "")
    harness.applied()
    harness.another_image("nginx:2")
    assert harness.check() == {"main"}
    [step] = harness.plan().steps
    assert step.changes[0].after == "nginx:1"


def test_a_heal_needs_approval_where_every_step_does(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path, approval="always")
    harness.approve(harness.plan().hold_digest)
    harness.applied()
    harness.another_image()
    assert harness.check() == {"main"}
    assert harness.apply().outcome == "waiting"
    assert harness.check() == set(), "it waits for an operator and not for another run"
    assert harness.conditions() == ["Ready False ApprovalRequired", "Reconciling True ApprovalRequired"]
    harness.approve(harness.plan().hold_digest)
    harness.applied()
    assert harness.check() == set()


def test_a_heal_that_fails_is_tried_again_like_any_step(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.ledger.fail[KEY] = 1
    harness.another_image()
    harness.check()
    assert harness.apply().outcome == "failed"
    assert harness.check() == set(), "another try is owed already"
    assert harness.conditions() == ["Ready False ExecFailed", "Reconciling True ExecFailed"]
    harness.applied()
    assert (harness.check(), harness.conditions()) == (set(), [READY])


def test_drift_at_a_location_that_is_no_longer_bound_is_forgotten(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.another_image()
    harness.check()
    harness.settings = msgspec.structs.replace(harness.settings, locations={"there": LocationSettings("recorded")})
    del harness.engines["here"]
    harness.monitor = harness.new_monitor()
    assert (harness.check(), harness.differs()) == (set(), [])


def test_drift_that_new_settings_ignore_is_not_healed_by_an_older_check(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.another_image()
    harness.check()
    rules = (Ignore(KEY, "spec.containers[main].image"),)
    harness.settings = msgspec.structs.replace(harness.settings, drift=DriftPolicy(ignore=rules))
    harness.pipeline = harness.new_pipeline()
    assert harness.plan().steps == ()


def test_a_location_that_lost_everything_is_reported_in_few_events_and_restored(tmp_path: Path) -> None:
    names = [f"w{number:03}" for number in range(120)]
    harness = DriftHarness(tmp_path, {**SHOP, **{f"shop/{name}.yaml": WEB.replace("web", name) for name in names}})
    harness.applied()
    before = harness.ledger.resources()
    for key in before:
        harness.ledger.meddle(key)
    assert harness.check() == {"main"}
    events = [each for each in harness.records.events.list(limit=1000) if each.reason == "DriftDetected"]
    assert (len(events), events[-1].message) == (101, "and 21 more; see: reconciler drift")
    harness.applied()
    assert (harness.ledger.resources(), harness.check()) == (before, set())


def test_a_failure_at_one_place_keeps_no_other_place_from_being_healed(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    other = Failure(
        Key.parse(KEY),
        "there",
        Reason.NO_FREE_PORT,
        "no room",
        3,
        harness.clock.now(),
        harness.clock.now(),
        retry=False,
    )
    harness.records.failures.put(other)
    harness.another_image()
    assert harness.check() == {"main"}
