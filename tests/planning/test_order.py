"""Dependencies of steps, and the one order that follows."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.model.key import Key, Kind
from reconciler.model.record import Health
from reconciler.model.resource import Dependency, Reference, Resource
from reconciler.planning.graph import order_steps
from reconciler.planning.inputs import PlannerInput
from reconciler.planning.plan import Action, Plan, Step, StepId
from tests.planning.test_deletes import FREE, VOLUMES, identity, shop, stateful, workload
from tests.support.engines import LedgerEngine
from tests.support.pipeline import BASE, PipelineHarness, placed


def waits(plan: Plan) -> dict[str, set[str]]:
    """Every step with what it waits for."""
    return {placed(step): {str(other) for other in step.waits_for} for step in plan.steps}


def ids(plan: Plan) -> list[str]:
    """The steps in their order."""
    return [f"{step.action} {placed(step)}" for step in plan.steps]


def respects(plan: Plan) -> bool:
    """Whether every step comes after those it waits for."""
    seen: set[StepId] = set()
    for step in plan.steps:
        if not seen.issuperset(step.waits_for):
            return False
        seen.add(step.id)
    return True


def test_a_step_waits_for_what_its_links_name_at_its_own_location(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(VOLUMES.format(name="data"), stateful("db", "data")))
    prerequisites = waits(harness.plan())
    assert prerequisites["workload/shop/db@here"] == {"gvc/shop", "volumeset/shop/data@here"}
    assert prerequisites["workload/shop/db@there"] == {"gvc/shop", "volumeset/shop/data@there"}
    assert prerequisites["volumeset/shop/data@here"] == {"gvc/shop"}


def test_depends_on_waits_for_every_location_and_for_health(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(workload("a"), workload("b", "{reconciler/depends-on: workload/a}")))
    plan = harness.plan()
    assert waits(plan)["workload/shop/b@here"] == {"gvc/shop", "workload/shop/a@here", "workload/shop/a@there"}
    assert {str(key) for step in plan.steps for key in step.needs_healthy} == {"workload/shop/a"}


def test_a_renamed_workload_stays_until_the_one_in_its_place_is_healthy(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(workload("old")), prune=FREE)
    harness.applied()
    engine = harness.engines["here"] = LedgerEngine(tmp_path / "ledger", "here")
    engine.unhealthy = {"workload/shop/new"}
    harness.commit(shop(workload("new")))
    plan = harness.plan()
    assert ids(plan) == [
        "create workload/shop/new@here",
        "create workload/shop/new@there",
        "delete workload/shop/old@here",
        "delete workload/shop/old@there",
    ]
    news = {"workload/shop/new@here", "workload/shop/new@there"}
    assert waits(plan) == {
        **{key: set() for key in news},
        **dict.fromkeys(("workload/shop/old@here", "workload/shop/old@there"), news),
    }
    assert harness.apply().outcome == "waiting"
    assert harness.outcomes[plan.steps[3].id].message == "waits until workload/shop/new is Healthy"
    # Another program, and another commit meanwhile: it still waits.
    harness.pipeline = harness.new_pipeline()
    harness.commit(shop(workload("new"), workload("more")))
    assert harness.apply().outcome == "waiting"
    assert "workload/shop/old@there" in harness.recorded()
    heal(harness, "workload/shop/new")
    assert not harness.has_nothing_to_do()
    engine.unhealthy.clear()
    harness.applied()
    assert {"workload/shop/old@here", "workload/shop/old@there"}.isdisjoint(harness.recorded())
    assert harness.plan().steps == ()


def heal(harness: PipelineHarness, key: str) -> None:
    """Let the records say that a resource is healthy, as the monitor does after it has observed so."""
    for record in harness.records.applied.get(key):
        harness.records.applied.put(msgspec.structs.replace(record, health=Health.HEALTHY))


@pytest.mark.parametrize(
    ("former", "why"),
    [
        pytest.param(
            workload("old").replace("type: standard", "type: cron, job: {schedule: '0 3 * * *'}"),
            "it serves nobody",
            id="cron",
        ),
        pytest.param(
            workload("old").replace("spec: {", "spec: {defaultOptions: {suspend: true}, "), "it is off", id="suspended"
        ),
        pytest.param(stateful("old", "data"), "its volumes go first", id="volumes"),
    ],
)
def test_a_renamed_workload_that_serves_nothing_now_is_deleted_at_once(tmp_path: Path, former: str, why: str) -> None:
    harness = PipelineHarness(tmp_path, shop(VOLUMES.format(name="data"), former), prune=FREE)
    harness.applied()
    harness.commit(shop(VOLUMES.format(name="data"), former.replace("name: old", "name: new")))
    plan = harness.plan()
    assert len(plan.renames) == 1, why
    assert not any(step.needs_healthy for step in plan.steps)
    harness.applied()
    assert harness.plan().steps == ()


def test_a_renamed_workload_that_is_not_healthy_itself_does_not_wait(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(workload("old")), prune=FREE)
    harness.engines["here"] = engine = LedgerEngine(tmp_path / "ledger", "here")
    engine.unhealthy = {"workload/shop/old", "workload/shop/new"}
    harness.engines["there"] = other = LedgerEngine(tmp_path / "other", "there")
    other.unhealthy = engine.unhealthy
    harness.applied()
    harness.commit(shop(workload("new")))
    harness.applied()
    assert "workload/shop/old@here" not in harness.recorded()


def test_no_resource_with_shared_references_waits_for_itself() -> None:
    shared = (Reference("workload/g/a", "/a"), Reference("workload/g/b", "/b", Dependency.HEALTHY))
    keys = [Key(Kind.WORKLOAD, "g", name) for name in "abc"]
    desired = {key: Resource(key, "", b"{}", shared, "", 1, 0, "") for key in keys}
    engines = {"here": "recorded", "there": "recorded"}
    scope = PlannerInput("main", "", keys, desired, {}, {"g": tuple(engines)}, engines, 0, "acme")
    steps = [Step(Action.CREATE, key, place, "recorded", 1, "", b"{}") for key in keys for place in engines]
    order_steps(scope, steps)
    prerequisites = {str(step.id): {str(other) for other in step.waits_for} for step in steps}
    everywhere = {"workload/g/b@here", "workload/g/b@there"}
    assert prerequisites["workload/g/a@here"] == everywhere
    assert prerequisites["workload/g/b@there"] == {"workload/g/a@there"}
    assert prerequisites["workload/g/c@here"] == {"workload/g/a@here", *everywhere}


def test_a_dependency_in_another_org_is_not_waited_for(tmp_path: Path) -> None:
    link = "/org/other/gvc/g/workload/w"
    harness = PipelineHarness(tmp_path, shop(workload("b", f"{{reconciler/depends-on: {link}}}")), external=(link,))
    harness.applied()


def test_without_links_the_kinds_go_in_their_order(tmp_path: Path) -> None:
    secret = "kind: secret\nname: s\ntype: dictionary\ndata: {}\n"
    policy = "kind: policy\nname: p\ntargetKind: secret\ntarget: all\n"
    harness = PipelineHarness(tmp_path, {"z.yaml": f"{policy}---\n{secret}", **shop(workload("a"), identity("z"))})
    assert [step.key.kind for step in harness.plan().steps] == [
        "secret",
        "gvc",
        "identity",
        "policy",
        "workload",
        "workload",
    ]


def test_a_deleted_gvc_goes_after_all_that_was_in_it(tmp_path: Path) -> None:
    files = shop(VOLUMES.format(name="data"), stateful("db", "data"), identity("i"), workload("web"))
    harness = PipelineHarness(tmp_path, files | {"z/gvc.yaml": BASE.replace("shop", "z")}, prune=FREE)
    harness.applied()
    harness.commit(dict.fromkeys(files))
    plan = harness.plan()
    assert respects(plan)
    assert ids(plan)[-1] == "delete gvc/shop"
    order = ids(plan)
    for place in ("here", "there"):
        assert order.index(f"delete workload/shop/db@{place}") < order.index(f"delete volumeset/shop/data@{place}")
    assert len(waits(plan)["gvc/shop"]) == 7


def test_a_former_reference_is_deleted_after_the_update(tmp_path: Path) -> None:
    def uses(name: str) -> str:
        return workload("a", spec=f"identityLink: //identity/{name}, containers: [{{name: main, image: nginx:1}}]")

    harness = PipelineHarness(tmp_path, shop(identity("old"), uses("old")), prune=FREE)
    harness.applied()
    harness.commit(shop(identity("new"), uses("new")))
    assert ids(harness.plan()) == [
        "create identity/shop/new",
        "update workload/shop/a@here",
        "update workload/shop/a@there",
        "delete identity/shop/old",
    ]


def test_a_dependent_is_deleted_before_its_dependency(tmp_path: Path) -> None:
    harness = PipelineHarness(
        tmp_path, shop(identity("i"), workload("a"), workload("b", "{reconciler/depends-on: workload/a}")), prune=FREE
    )
    harness.applied()
    harness.commit(shop(identity("i")))
    plan = harness.plan()
    assert respects(plan)
    assert "workload/shop/b@here" in waits(plan)["workload/shop/a@here"]


def test_a_volume_set_is_released_before_it_is_acquired(tmp_path: Path) -> None:
    volumes = VOLUMES.format(name="data")
    harness = PipelineHarness(tmp_path, shop(volumes, stateful("z", "data"), stateful("a")), prune=FREE)
    harness.applied()
    harness.commit(shop(volumes, stateful("z"), stateful("a", "data")))
    plan = harness.plan()
    assert waits(plan)["workload/shop/a@here"] == {"workload/shop/z@here"}
    assert ids(plan)[0] == "update workload/shop/z@here"
    harness.applied()
    assert b'"usedByWorkload":"/org/acme/gvc/shop/workload/a"' in harness.recorded()["volumeset/shop/data@here"].state


def test_a_deleted_workload_lets_go_of_its_volume_set_first(tmp_path: Path) -> None:
    volumes = VOLUMES.format(name="data")
    harness = PipelineHarness(tmp_path, shop(volumes, stateful("old", "data")), prune=FREE)
    harness.applied()
    harness.commit(shop(volumes, stateful("new", "data").replace("pg", "pg2")))
    assert waits(harness.plan())["workload/shop/new@here"] == {"workload/shop/old@here"}
    harness.applied()
    assert b"workload/new" in harness.recorded()["volumeset/shop/data@there"].state


@pytest.mark.parametrize("turn", [2, 3])
def test_workloads_that_swap_volume_sets_do_not_wait_in_a_circle(turn: int, tmp_path: Path) -> None:
    names = ["a", "b", "c"][:turn]
    volumes = [VOLUMES.format(name=f"data-{name}") for name in names]
    harness = PipelineHarness(tmp_path, shop(*volumes, *(stateful(name, f"data-{name}") for name in names)))
    harness.applied()
    swapped = zip(names, [*names[1:], names[0]], strict=True)
    harness.commit(shop(*volumes, *(stateful(name, f"data-{other}") for name, other in swapped)))
    plan = harness.plan()
    assert respects(plan)
    assert sum(len(others) for others in waits(plan).values()) == 2 * (turn - 1)
    harness.applied()
    assert harness.plan().steps == ()


def test_a_retry_after_a_half_applied_change_does_not_count_twice(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(workload("a")))
    harness.applied()
    sound, broken = harness.engines["there"], LedgerEngine(tmp_path / "ledger", "there")
    broken.fail = {"workload/shop/a": 1}
    harness.engines["there"] = broken
    harness.commit(shop(workload("a").replace("nginx:1", "nginx:2")))
    assert harness.apply().outcome == "failed"
    assert {place: record.version for place, record in harness.recorded().items()} == {
        "gvc/shop": 1,
        "workload/shop/a@here": 2,
        "workload/shop/a@there": 1,
    }
    harness.engines["there"] = sound
    [step] = harness.plan().steps
    assert (placed(step), step.version) == ("workload/shop/a@there", 2)
    harness.applied()
    harness.commit(shop(workload("a").replace("nginx:1", "nginx:3")))
    assert {step.version for step in harness.plan().steps} == {3}


def test_a_workload_that_is_not_placed_here_waits_for_no_health(tmp_path: Path) -> None:
    afar = BASE.replace("//location/here, //location/there", "//location/afar")
    files = shop(workload("a"), workload("b", "{reconciler/depends-on: workload/a}"), gvc=afar)
    harness = PipelineHarness(tmp_path, files, external=("//location/afar",))
    harness.applied()
    assert harness.recorded().keys() == {"gvc/shop", "workload/shop/a", "workload/shop/b"}


@pytest.mark.parametrize("dependency", ["workload/other/db", "workload/away/db"])
def test_a_dependency_outside_this_host_is_not_waited_for(dependency: str, tmp_path: Path) -> None:
    away = "kind: gvc\nname: away\nspec: {staticPlacement: {locationLinks: [//location/unbound]}}\n"
    db = "kind: workload\nname: db\ngvc: away\nspec: {type: standard, containers: [{name: main, image: pg:1}]}\n"
    spec = "spec: {type: standard, containers: [{name: main, image: nginx:1}]}\n"
    web = f"kind: workload\nname: web\ntags: {{reconciler/depends-on: {dependency}}}\n{spec}"
    files = {"shop/gvc.yaml": BASE, "shop/web.yaml": web, "away/gvc.yaml": away, "away/db.yaml": db}
    location = "kind: location\nname: unbound\nprovider: byok\n"
    harness = PipelineHarness(tmp_path, {**files, "l.yaml": location}, external=("//gvc/other/workload/db",))
    harness.applied()
    assert {placed(step) for step in harness.plan().steps} == set()
