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
from tests.pipeline.meddling import KEY, SHOP, WEB, Meddled
from tests.support.pipeline import placed

READY = "Ready True Recorded"


def test_a_resource_as_applied_is_not_touched(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    assert way.check() == set()
    assert (way.differs(), way.plan().steps, way.conditions()) == ([], (), [READY])
    assert way.records.drifts.last_checked_at() == way.clock.now()


def test_a_deleted_deployment_is_restored_in_the_same_version(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    way.applied()
    before = way.recorded(), way.ledger.world()
    way.ledger.meddle(KEY)
    assert way.check() == {"main"}
    assert way.differs() == [f"{KEY} missing at here"]
    assert way.conditions() == ["Ready False Drifted", "Reconciling True Drifted"]
    steps = way.plan().steps
    assert [(step.action, placed(step), step.version, step.heals) for step in steps] == [
        ("create", f"{KEY}@here", 2, True)
    ]
    way.applied()
    after = {name: msgspec.structs.replace(record, applied_at=0.0) for name, record in way.recorded().items()}
    assert after == {name: msgspec.structs.replace(record, applied_at=0.0) for name, record in before[0].items()}
    assert way.ledger.world() == before[1]
    assert (way.check(), way.differs(), way.plan().steps, way.conditions()) == (set(), [], (), [READY])
    assert way.events("DriftDetected", "DriftHealed") == [f"DriftDetected {KEY}", f"DriftHealed {KEY}"]


def test_a_changed_field_is_brought_back(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.another_image()
    assert way.check() == {"main"}
    [step] = way.plan().steps
    [change] = step.changes
    assert (step.action, step.version) == ("update", 1)
    assert (change.path, change.before, change.after) == ("spec.containers[main].image", "nginx:9", "nginx:1")
    way.applied()
    assert way.ledger.performed() == [f"create {KEY}", f"update {KEY}"]
    assert way.check() == set()


def test_a_version_that_is_not_the_recorded_one_is_brought_back(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.ledger.meddle(KEY, version=7)
    assert way.check() == {"main"}
    way.applied()
    assert way.ledger.world()[KEY]["version"] == 1


def test_drift_is_reported_once_and_detected_again_after_a_restart(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.another_image()
    way.check()
    way.lookout, way.line = way.fresh_lookout(), way.fresh_line()
    assert way.check() == {"main"}
    assert way.events("DriftDetected") == [f"DriftDetected {KEY}"]
    way.another_image("nginx:8")
    way.ledger.meddle("workload/shop/none")
    way.check()
    assert len(way.events("DriftDetected")) == 2
    way.applied()
    assert way.check() == set()


def test_drift_that_resolves_itself_is_reported_too(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    world = way.ledger.world()[KEY]
    way.ledger.meddle(KEY)
    way.check()
    way.ledger.meddle(KEY, **world)
    assert way.check() == set()
    assert (way.differs(), way.plan().steps) == ([], ())
    assert way.events("DriftResolved", "DriftHealed") == [f"DriftResolved {KEY}"]


def test_a_change_on_its_way_is_no_drift(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    way.ledger.refuse.add(KEY)
    assert way.apply().outcome == "failed"
    way.another_image("nginx:2")
    assert (way.check(), way.differs()) == (set(), [])


def test_a_new_revision_takes_a_drift_with_it(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.another_image()
    way.check()
    way.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    [here, there] = way.plan().steps
    assert (here.heals, here.version, there.version) == (False, 2, 2)
    way.applied()
    assert (way.differs(), way.events("DriftHealed")) == ([], [])


def test_a_location_that_does_not_answer_shows_no_drift(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.another_image()
    way.check()

    async def silent() -> list[Observation]:
        raise EngineError("no route", reason=Reason.EXEC_FAILED)

    seeing, way.ledger.observe = way.ledger.observe, silent  # type: ignore[method-assign]
    way.check()
    way.check()
    assert way.lookout.unreachable == {"here": "ExecFailed: no route"}
    assert way.differs() == [f"{KEY} changed at here: spec.containers[main].image"]
    assert way.events("LocationUnreachable", "LocationReachable") == ["LocationUnreachable location/here"]
    way.ledger.observe = seeing  # type: ignore[method-assign]
    way.check()
    assert way.events("LocationUnreachable", "LocationReachable") == [
        "LocationUnreachable location/here",
        "LocationReachable location/here",
    ]


def test_what_runs_at_a_location_that_stays_silent_is_unknown_until_it_answers_again(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    healthy = {
        "health": "Healthy",
        "state": '{"status": {"ready": true, "message": ""}, "workload": {"health": "Healthy"}}',
    }
    way.ledger.meddle(KEY, **{**way.ledger.world()[KEY], **healthy})
    way.check()

    def seen() -> tuple[str, bytes]:
        record = way.recorded()[f"{KEY}@here"]
        return str(record.health), record.state

    async def silent() -> list[Observation]:
        raise EngineError("no route", reason=Reason.EXEC_FAILED)

    seeing, way.ledger.observe = way.ledger.observe, silent  # type: ignore[method-assign]
    before = seen()
    assert before[0] == "Healthy"
    way.check()
    assert seen() == before, "one failure says nothing about what was there a moment ago"
    way.check()
    health, state = seen()
    status = msgspec.json.decode(state)
    assert (health, status["status"]["ready"], status["workload"]["health"]) == ("Unknown", False, "Unknown")
    assert status["status"]["message"] == "the location cannot be observed: ExecFailed: no route"
    assert way.lookout.health_changed
    way.check()
    assert not way.lookout.health_changed, "it is written once"
    way.lookout = way.fresh_lookout()
    way.ledger.observe = seeing  # type: ignore[method-assign]
    way.check()
    assert seen() == before
    way.lookout, way.ledger.observe = way.fresh_lookout(), silent  # type: ignore[method-assign]
    way.check()
    assert seen()[0] == "Unknown", "nothing was observed since the daemon began"
    way.ledger.observe = seeing  # type: ignore[method-assign]
    way.check()
    assert (seen(), way.events("Healthy")) == (before, []), "its return is one event"


def test_a_bug_in_looking_is_named_and_its_text_is_not(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()

    async def broken() -> list[Observation]:
        raise KeyError("what a secret text")

    way.ledger.observe = broken  # type: ignore[method-assign]
    assert way.check() == set()
    assert way.lookout.unreachable["here"].startswith("InternalError: KeyError at reconciler/drift/monitor.py:")
    assert way.records.drifts.last_checked_at() is None


def test_an_unknown_resource_with_our_label_is_reported_and_not_touched(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.ledger.meddle("workload/shop/old", digest="x")
    assert (way.check(), way.differs()) == (set(), []), "before the source is read its owner is unknown"
    way.applied()
    assert way.check() == set()
    assert way.differs() == ["workload/shop/old unexpected at here"]
    way.applied()
    assert "workload/shop/old" in way.ledger.world()
    way.commit({"shop/old.yaml": WEB.replace("web", "old")})
    way.applied()
    assert (way.check(), way.differs()) == (set(), [])


def test_a_drift_conflict_stops_healing_and_is_reported_once(tmp_path: Path) -> None:
    way = Meddled(tmp_path, drift=DriftPolicy(most_heals=2))
    way.applied()
    for _ in range(2):
        way.another_image()
        assert way.check() == {"main"}
        way.applied()
    way.another_image()
    assert (way.check(), way.check(), way.plan().steps) == (set(), set(), ())
    assert way.events("DriftConflict") == [f"DriftConflict {KEY}"]
    assert way.conditions() == ["Ready False DriftConflict", "Stalled True DriftConflict"]
    way.clock._passed += 7200  # time alone does not resume healing
    assert (way.check(), way.fresh_line().plan_revision().plan.steps) == (set(), ())  # type: ignore[union-attr]


def test_retry_takes_a_fight_up_again(tmp_path: Path) -> None:
    way = _fought(tmp_path)
    assert way.operations().retry(Key.parse(KEY)) == f"{KEY} is retried"
    assert len(way.plan().steps) == 1
    way.applied()
    assert (way.check(), way.conditions()) == (set(), [READY])


def test_a_new_revision_takes_a_fight_up_again(tmp_path: Path) -> None:
    way = _fought(tmp_path)
    way.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    way.applied()
    assert (way.check(), way.conditions()) == (set(), [READY])
    way.another_image()
    assert way.check() == {"main"}


def test_heals_an_hour_apart_are_no_fight(tmp_path: Path) -> None:
    way = Meddled(tmp_path, drift=DriftPolicy(most_heals=1))
    way.applied()
    for _ in range(3):
        way.another_image()
        assert way.check() == {"main"}
        way.applied()
        way.clock._passed += 3601


def _fought(path: Path) -> Meddled:
    way = Meddled(path, drift=DriftPolicy(most_heals=1))
    way.applied()
    way.another_image()
    way.check()
    way.applied()
    way.another_image()
    assert way.check() == set()
    return way


def test_drift_is_reported_also_without_healing(tmp_path: Path) -> None:
    way = Meddled(tmp_path, drift=DriftPolicy(heal=False))
    way.applied()
    way.another_image()
    assert (way.check(), way.plan().steps) == (set(), ())
    assert (way.events("DriftDetected"), way.conditions()) == ([f"DriftDetected {KEY}"], ["Ready False Drifted"])


@pytest.mark.parametrize("how", ["settings", "tag"])
def test_ignored_fields_are_left_to_others(tmp_path: Path, how: str) -> None:
    path = "spec.containers[*].image"
    tag = f'tags: {{reconciler/ignore: "{path}"}}\nspec:'
    files = SHOP if how == "settings" else {**SHOP, "shop/web.yaml": WEB.replace("spec:", tag)}
    rules = (Ignore("workload/*", path),) if how == "settings" else ()
    way = Meddled(tmp_path, files, drift=DriftPolicy(ignore=rules))
    way.applied()
    way.another_image()
    assert (way.check(), way.differs(), way.conditions()) == (set(), [], [READY])
    way.ledger.meddle(KEY)
    assert way.check() == {"main"}


def test_a_suspended_resource_is_left_as_it_is_until_it_is_resumed(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.operations().suspend(KEY, "debugging", None)
    way.another_image()
    assert way.check() == set()
    assert way.apply().outcome == "waiting"
    assert way.conditions() == ["Ready False Suspended", "Reconciling True Suspended", "Suspended True Suspended"]
    way.operations().resume(KEY)
    way.applied()
    assert (way.check(), way.conditions()) == (set(), [READY])


def test_a_source_that_was_rolled_back_is_healed_towards_its_pin(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    first = way.repo.git("rev-parse", way.branch)
    way.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")})
    way.applied()
    operations = way.operations()
    operations.rollback(operations.rollback_target("main", first), "")
    way.applied()
    way.another_image("nginx:2")
    assert way.check() == {"main"}
    [step] = way.plan().steps
    assert step.changes[0].after == "nginx:1"


def test_a_heal_needs_approval_where_every_step_does(tmp_path: Path) -> None:
    way = Meddled(tmp_path, approval="always")
    way.approve(way.plan().hold_digest)
    way.applied()
    way.another_image()
    assert way.check() == {"main"}
    assert way.apply().outcome == "waiting"
    assert way.check() == set(), "it waits for an operator and not for another run"
    assert way.conditions() == ["Ready False ApprovalRequired", "Reconciling True ApprovalRequired"]
    way.approve(way.plan().hold_digest)
    way.applied()
    assert way.check() == set()


def test_a_heal_that_fails_is_tried_again_like_any_step(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.ledger.fail[KEY] = 1
    way.another_image()
    way.check()
    assert way.apply().outcome == "failed"
    assert way.check() == set(), "another try is owed already"
    assert way.conditions() == ["Ready False ExecFailed", "Reconciling True ExecFailed"]
    way.applied()
    assert (way.check(), way.conditions()) == (set(), [READY])


def test_drift_at_a_location_that_is_no_longer_bound_is_forgotten(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.another_image()
    way.check()
    way.settings = msgspec.structs.replace(way.settings, locations={"there": LocationSettings("recorded")})
    del way.engines["here"]
    way.lookout = way.fresh_lookout()
    assert (way.check(), way.differs()) == (set(), [])


def test_drift_that_new_settings_ignore_is_not_healed_by_an_older_check(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    way.another_image()
    way.check()
    rules = (Ignore(KEY, "spec.containers[main].image"),)
    way.settings = msgspec.structs.replace(way.settings, drift=DriftPolicy(ignore=rules))
    way.line = way.fresh_line()
    assert way.plan().steps == ()


def test_a_location_that_lost_everything_is_reported_in_few_events_and_restored(tmp_path: Path) -> None:
    names = [f"w{number:03}" for number in range(120)]
    way = Meddled(tmp_path, {**SHOP, **{f"shop/{name}.yaml": WEB.replace("web", name) for name in names}})
    way.applied()
    before = way.ledger.world()
    for key in before:
        way.ledger.meddle(key)
    assert way.check() == {"main"}
    events = [each for each in way.records.events.list(limit=1000) if each.reason == "DriftDetected"]
    assert (len(events), events[-1].message) == (101, "and 21 more; see: reconciler drift")
    way.applied()
    assert (way.ledger.world(), way.check()) == (before, set())


def test_a_failure_at_one_place_keeps_no_other_place_from_being_healed(tmp_path: Path) -> None:
    way = Meddled(tmp_path)
    way.applied()
    other = Failure(
        Key.parse(KEY), "there", Reason.NO_FREE_PORT, "no room", 3, way.clock.now(), way.clock.now(), retry=False
    )
    way.records.failures.put(other)
    way.another_image()
    assert way.check() == {"main"}
