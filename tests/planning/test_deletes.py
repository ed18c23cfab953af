"""What is deleted, what stays, and what waits for approval."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from reconciler.model.record import Health
from reconciler.planning.inputs import PrunePolicy
from reconciler.planning.plan import Action, Hold, Plan
from reconciler.planning.planner import budgeted_deletes
from reconciler.render.plan.json import build_plan_document
from reconciler.render.plan.markdown import render_markdown
from reconciler.render.plan.text import render_plan_text
from reconciler.settings import PruneSettings
from reconciler.times import format_iso_time
from tests.support.git import File
from tests.support.pipeline import BASE, PLACES, PipelineHarness, placed

FREE = PruneSettings(count=100, percent=100)
VOLUMES = "kind: volumeset\nname: {name}\nspec: {{initialCapacity: 10, performanceClass: general-purpose-ssd}}\n"


def identity(name: str, tags: str = "{}") -> str:
    """A manifest of the cheapest kind."""
    return f"kind: identity\nname: {name}\ntags: {tags}\n"


def workload(name: str, tags: str = "{}", spec: str = "") -> str:
    """A standard workload; ``spec`` adds fields."""
    spec = spec or "containers: [{name: main, image: nginx:1}]"
    return f"kind: workload\nname: {name}\ntags: {tags}\nspec: {{type: standard, {spec}}}\n"


def stateful(name: str, *volumesets: str) -> str:
    """A stateful workload that mounts volume sets."""
    mounts = ", ".join(f"{{uri: 'platform://volumeset/{one}', path: /{one}}}" for one in volumesets)
    container = f"{{name: main, image: pg:1, volumes: [{mounts}]}}"
    return f"kind: workload\nname: {name}\nspec: {{type: stateful, containers: [{container}]}}\n"


def shop(*documents: str, gvc: str = BASE) -> dict[str | bytes, File]:
    """A repository with the GVC shop and ``documents`` in it."""
    return {"shop/gvc.yaml": gvc, "shop/all.yaml": "---\n".join(documents) or "# nothing\n"}


def holds(plan: Plan) -> dict[str, str]:
    """Every delete with the reason for its hold."""
    return {placed(step): str(step.hold) for step in plan.steps if step.action is Action.DELETE}


@pytest.mark.parametrize(
    ("inventory", "allowed"), [(0, 1), (1, 1), (5, 1), (9, 1), (10, 2), (49, 9), (50, 10), (51, 10), (100_000, 10)]
)
def test_the_budget_is_the_smaller_of_ten_and_a_fifth_and_at_least_one(inventory: int, allowed: int) -> None:
    assert PrunePolicy().allowance(inventory) == allowed


@pytest.mark.parametrize(("inventory", "allowed"), [(0, 1), (4, 1), (5, 2), (10, 4), (49, 19), (50, 20), (100_000, 20)])
def test_the_budget_of_an_hour_is_twice_that_of_a_run(inventory: int, allowed: int) -> None:
    assert PrunePolicy().hourly_allowance(inventory) == allowed


def test_the_budget_of_an_hour_is_never_less_than_that_of_a_run() -> None:
    assert PrunePolicy(count=50, percent=100, hourly_count=0).hourly_allowance(80) == 50


def many(first: int, last: int = 59) -> dict[str | bytes, File]:
    """Identities by number, beside the GVC and its locations."""
    return shop(*(identity(f"i{number:02}") for number in range(first, last)))


def in_small_steps(harness: PipelineHarness, steps: int) -> list[str]:
    """Commits of six deletes each, a minute apart; how their runs ended."""
    ended = []
    for step in range(1, steps + 1):
        harness.clock.block(60)
        harness.commit(many(6 * step))
        ended.append(harness.apply().outcome)
    return ended


def left(harness: PipelineHarness) -> int:
    """Identities that are recorded."""
    return sum(key.startswith("identity/") for key in harness.recorded())


def test_small_deletes_one_after_the_other_are_bounded_within_an_hour(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, many(0))
    harness.applied()
    began = harness.clock.now()
    assert in_small_steps(harness, 6) == ["applied"] * 3 + ["waiting"] * 3
    assert left(harness) == 59 - 18
    harness.commit(many(24))
    plan = harness.plan()
    assert set(holds(plan).values()) == {"prune-hourly-budget"}
    first = format_iso_time(math.ceil(began + 60 + 3600))
    assert f"more deletes than the runs of an hour may make; the budget allows more at {first}" in render_plan_text(
        plan
    )
    assert {step["hold_until"] for step in build_plan_document(plan)["steps"]} == {first}
    assert harness.apply().outcome == "waiting"
    message = next(iter(harness.outcomes.values())).message
    assert f"(the budget allows more at {first}): reconciler approve {plan.hold_digest[:12]}" in message


def test_deletes_beyond_the_hourly_limit_follow_in_the_next_hour(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, many(0))
    harness.applied()
    assert in_small_steps(harness, 4)[-1] == "waiting"
    assert harness.has_nothing_to_do()
    harness.clock.block(3600 - 4 * 60)
    assert harness.has_nothing_to_do()
    harness.clock.block(120)
    assert not harness.has_nothing_to_do()
    harness.applied()
    assert left(harness) == 59 - 24


def test_approved_deletes_are_no_part_of_the_budget_of_the_hour(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, many(0))
    harness.applied()
    harness.commit(many(30))
    harness.approve(harness.plan().hold_digest)
    harness.applied()
    harness.commit(many(34))
    harness.applied()
    assert left(harness) == 59 - 34


def test_a_restart_does_not_renew_the_budget(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, many(0))
    harness.applied()
    in_small_steps(harness, 3)
    harness.pipeline = harness.new_pipeline()
    harness.commit(many(24))
    assert harness.apply().outcome == "waiting"


def test_a_delete_that_is_tried_again_counts_once(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, many(0))
    harness.applied()
    harness.commit(many(6))
    for _ in range(5):
        harness.pipeline = harness.new_pipeline()
        harness.pipeline.start_run(harness.prepare(), "test")
    harness.pipeline = harness.new_pipeline()
    harness.applied()
    harness.commit(many(12))
    harness.applied()
    assert left(harness) == 59 - 12


def let_end(harness: PipelineHarness, *keys: str) -> None:
    """Show ``keys`` as an engine does whose replicas end."""
    for key in keys:
        for location in PLACES:
            harness.records.applied.update_seen(key, location, Health.DELETING, b"{}")


def begin(harness: PipelineHarness, files: dict[str | bytes, File], *ending: str) -> None:
    """Commit ``files``, and begin a run whose deletes of ``ending`` do not end yet."""
    harness.commit(files)
    harness.pipeline.start_run(harness.prepare(), "test")
    harness.pipeline = harness.new_pipeline()
    let_end(harness, *ending)


def test_a_delete_that_is_under_way_goes_on_while_another_one_waits(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(6)]
    harness = PipelineHarness(tmp_path, shop(*map(workload, names)))
    harness.applied()
    begin(harness, shop(*map(workload, names[1:])), "workload/shop/w0")
    harness.commit(shop(*map(workload, names[3:])))
    waits = "prune-budget"
    assert holds(harness.plan()) == {
        f"workload/shop/w{number}@{place}": "" if number == 0 else waits for number in range(3) for place in PLACES
    }
    harness.commit(shop(*map(workload, names[2:])))
    assert set(holds(harness.plan()).values()) == {""}, "one more is within the budget of a run"


def test_a_delete_waits_like_every_other_where_another_tool_began_it(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(6)]
    harness = PipelineHarness(tmp_path, shop(*map(workload, names)))
    harness.applied()
    let_end(harness, "workload/shop/w0")
    harness.commit(shop(*map(workload, names[2:])))
    assert set(holds(harness.plan()).values()) == {"prune-budget"}


def test_an_approved_delete_that_is_under_way_needs_no_second_approval(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    harness = PipelineHarness(tmp_path, shop(*(VOLUMES.format(name=name) for name in names)))
    harness.applied()
    harness.commit(shop(*(VOLUMES.format(name=name) for name in names[1:])))
    harness.approve(harness.plan().hold_digest)
    begin(harness, shop(*(VOLUMES.format(name=name) for name in names[1:])), "volumeset/shop/a")
    harness.commit(shop(*(VOLUMES.format(name=name) for name in names[2:])))
    for _ in range(2):
        plan = harness.plan()
        assert holds(plan) == {
            f"volumeset/shop/{name}@{location}": hold
            for name, hold in (("a", ""), ("b", "deletes-volumes"))
            for location in PLACES
        }
        assert budgeted_deletes(plan) == []
        harness.pipeline.start_run(harness.prepare(), "test")
        harness.pipeline = harness.new_pipeline()
    harness.approve(plan.hold_digest)
    harness.applied()
    assert [key for key in harness.recorded() if key.startswith("volumeset/")] == [
        f"volumeset/shop/c@{location}" for location in PLACES
    ]
    assert harness.records.approvals.valid(harness.clock.now()) == frozenset()


@pytest.mark.parametrize("jump", [-54 * 365 * 86_400, -1800, 54 * 365 * 86_400])
def test_a_clock_that_is_set_frees_no_deletes_and_holds_them_for_another_hour_at_most(
    tmp_path: Path, jump: float
) -> None:
    harness = PipelineHarness(tmp_path, many(0))
    harness.applied()
    assert in_small_steps(harness, 4)[-1] == "waiting"
    harness.clock.jump(jump)
    if jump != -1800:
        assert not harness.has_nothing_to_do(), "the time at which the budget is free is another one"
    assert harness.apply().outcome == "waiting"
    harness.clock.block(3601)
    if jump < 0:
        assert harness.apply().outcome == "waiting"
        harness.clock.block(3601)
    assert not harness.has_nothing_to_do()
    harness.applied()


def test_deletes_after_the_clock_was_set_count_from_there(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, many(0))
    harness.applied()
    assert in_small_steps(harness, 4)[-1] == "waiting"
    harness.clock.jump(54 * 365 * 86_400)
    harness.clock.block(3601)
    harness.applied()
    assert [harness.apply().outcome for files in (many(30), many(36), many(42)) if harness.commit(files)][
        -1
    ] == "waiting"


def test_a_kind_has_a_budget_of_its_own_besides(tmp_path: Path) -> None:
    prune = PruneSettings(count=100, percent=100, kinds={"workload": 1})
    names = [f"n{number}" for number in range(3)]
    harness = PipelineHarness(tmp_path, shop(*map(identity, names), *map(workload, names)), prune=prune)
    harness.applied()
    harness.commit(shop(*map(workload, names[1:])))
    assert set(holds(harness.plan()).values()) == {""}, "three identities and one workload may go"
    harness.commit(shop(workload("n2")))
    plan = harness.plan()
    assert {key.partition("/")[0]: hold for key, hold in holds(plan).items()} == {
        "identity": "",
        "workload": "prune-budget",
    }
    harness.approve(plan.hold_digest)
    assert set(holds(harness.plan()).values()) == {""}


def test_one_delete_over_the_budget_makes_all_wait_and_nothing_else(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(*(identity(f"i{number}") for number in range(9))))
    harness.applied()
    harness.commit(shop(*(identity(f"i{number}") for number in range(2, 9)), identity("new")))
    assert holds(harness.plan()) == {"identity/shop/i0": "", "identity/shop/i1": ""}
    harness.commit(shop(*(identity(f"i{number}") for number in range(3, 9)), identity("new")))
    plan = harness.plan()
    assert holds(plan) == {f"identity/shop/i{number}": "prune-budget" for number in range(3)}
    assert harness.apply().outcome == "waiting"
    assert "identity/shop/new" in harness.recorded()
    assert "identity/shop/i0" in harness.recorded()
    harness.approve(plan.hold_digest)
    harness.applied()
    assert not {f"identity/shop/i{number}" for number in range(3)} & harness.recorded().keys()


def test_the_budget_counts_resources_and_not_their_locations(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(workload("a"), workload("b")))
    harness.applied()
    harness.commit(shop(workload("a")))
    assert holds(harness.plan()) == {"workload/shop/b@here": "", "workload/shop/b@there": ""}


def test_an_approval_covers_its_deletes_after_further_commits(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(*(identity(f"i{number}") for number in range(5))))
    harness.applied()
    harness.commit(shop(*(identity(f"i{number}") for number in range(2, 5))))
    plan = harness.plan()
    assert plan.hold_digest
    harness.approve(plan.hold_digest)
    harness.commit(shop(*(identity(f"i{number}") for number in range(2, 5)), identity("unrelated")))
    again = harness.plan()
    assert (again.hold_digest, again.approved) == ("", plan.hold_digest)
    harness.commit(shop(*(identity(f"i{number}") for number in range(3, 5)), identity("unrelated")))
    assert harness.plan().hold_digest not in ("", plan.hold_digest)


def test_an_approval_is_used_up(tmp_path: Path) -> None:
    files, fewer = shop(identity("a"), identity("b"), identity("c")), shop(identity("a"))
    harness = PipelineHarness(tmp_path, files)
    harness.applied()
    harness.commit(fewer)
    digest = harness.plan().hold_digest
    harness.approve(digest)
    harness.applied()
    harness.commit(files)
    harness.applied()
    harness.commit(fewer)
    assert harness.plan().hold_digest == digest


def test_an_approval_that_was_never_used_ends_with_the_plan_it_was_for(tmp_path: Path) -> None:
    files, fewer = shop(identity("a"), identity("b"), identity("c")), shop(identity("a"))
    harness = PipelineHarness(tmp_path, files)
    harness.applied()
    harness.commit(fewer)
    digest = harness.plan().hold_digest
    harness.approve(digest)
    harness.commit(files)
    harness.applied()
    harness.commit(fewer)
    assert harness.plan().hold_digest == digest


def test_an_approval_during_the_start_of_a_run_is_not_lost(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(identity("a"), identity("b"), identity("c")))
    harness.applied()
    harness.commit(shop(identity("a")))
    prepared = harness.prepare()
    assert prepared.plan is not None
    harness.approve(prepared.plan.hold_digest)
    harness.pipeline.start_run(prepared, "test")
    harness.pipeline = harness.new_pipeline()
    assert harness.plan().approved == prepared.plan.hold_digest


def test_a_run_of_one_source_leaves_approvals_of_another_alone(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(identity("a"), identity("b"), identity("c")))
    harness.applied()
    harness.commit(shop(identity("a")))
    digest = harness.plan().hold_digest
    harness.approve(digest)
    PipelineHarness(
        tmp_path,
        {"i.yaml": "kind: secret\nname: s\ntype: dictionary\ndata: {a: b}\n"},
        records=harness.records,
        name="two",
    ).applied()
    assert harness.plan().approved == digest


def test_approved_deletes_are_carried_out_without_a_commit(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(identity("a"), identity("b"), identity("c")))
    harness.applied()
    harness.commit(shop(identity("a")))
    assert harness.apply().outcome == "waiting"
    harness.approve(harness.plan().hold_digest)
    harness.pipeline = harness.new_pipeline()
    harness.applied()
    assert harness.recorded().keys() == {"gvc/shop", "identity/shop/a"}


@pytest.mark.parametrize("tags", ["{platform/protected: true}", "{reconciler/prune: disabled}"])
def test_a_tag_keeps_what_left_git_and_all_that_it_needs(tags: str, tmp_path: Path) -> None:
    uses = "identityLink: //identity/api, containers: [{name: main, image: nginx:1}]"
    files = shop(identity("api"), identity("other"), workload("api", tags, uses), workload("web"))
    harness = PipelineHarness(tmp_path, files | {"z/gvc.yaml": BASE.replace("shop", "z")}, prune=FREE)
    harness.applied()
    harness.commit(dict.fromkeys(files))
    plan = harness.plan()
    assert holds(plan).keys() == {"identity/shop/other", "workload/shop/web@here", "workload/shop/web@there"}
    assert {str(each.key) for each in plan.retained} == {"gvc/shop", "identity/shop/api", "workload/shop/api"}
    reasons = {str(each.key): each.reason for each in plan.retained}
    assert reasons["workload/shop/api"].startswith(f"the tag {tags[1:].partition(':')[0]}")
    assert reasons["identity/shop/api"] == "workload/shop/api stays and needs it"


def test_a_protected_resource_stays_at_a_location_that_its_gvc_leaves(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(workload("a", "{platform/protected: true}"), workload("b")), prune=FREE)
    harness.applied()
    fewer = BASE.replace(", //location/there", "")
    harness.commit({"shop/gvc.yaml": fewer})
    plan = harness.plan()
    assert holds(plan) == {"workload/shop/b@there": ""}
    assert [str(each.key) for each in plan.retained] == ["workload/shop/a"]


def test_nothing_goes_where_pruning_is_switched_off(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(identity("a"), identity("b")), prune=PruneSettings(enabled=False))
    harness.applied()
    harness.commit(shop(identity("b")))
    plan = harness.plan()
    assert holds(plan) == {}
    assert [(str(each.key), each.reason) for each in plan.retained] == [("identity/shop/a", "pruning is switched off")]


def test_every_plan_lists_what_it_retains(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(identity("a", "{platform/protected: true}"), identity("b")))
    harness.applied()
    harness.commit(shop(identity("b")))
    harness.applied()
    assert [str(each.key) for each in harness.plan().retained] == ["identity/shop/a"]
    harness.pipeline = harness.new_pipeline()
    assert [str(each.key) for each in harness.plan().retained] == ["identity/shop/a"]


def test_built_in_resources_are_changed_and_never_deleted(tmp_path: Path) -> None:
    groups = "kind: group\nname: viewers\n---\nkind: group\nname: ops\n"
    policy = "kind: policy\nname: viewers-gvc\ntargetKind: gvc\ntarget: all\n"
    harness = PipelineHarness(tmp_path, shop(identity("a")) | {"org.yaml": f"{groups}---\n{policy}"}, prune=FREE)
    harness.applied()
    harness.commit({"org.yaml": None})
    plan = harness.plan()
    assert holds(plan) == {"group/ops": ""}
    reasons = [(str(each.key), each.reason) for each in plan.retained]
    assert reasons == [("group/viewers", "it is built in"), ("policy/viewers-gvc", "it is built in")]


def test_volumes_wait_however_large_the_budget(tmp_path: Path) -> None:
    files = shop(VOLUMES.format(name="data"), stateful("db", "data"), workload("web"))
    harness = PipelineHarness(tmp_path, files | {"z/gvc.yaml": BASE.replace("shop", "z")}, prune=FREE)
    harness.applied()
    harness.commit({"shop/all.yaml": stateful("db").replace(", volumes: []", "") + "---\n" + workload("web")})
    assert set(holds(harness.plan()).values()) == {"deletes-volumes"}
    harness.commit(dict.fromkeys(files))
    assert holds(harness.plan()) == {
        "workload/shop/web@here": "",
        "workload/shop/web@there": "",
        "workload/shop/db@here": "",
        "workload/shop/db@there": "",
        "volumeset/shop/data@here": "deletes-volumes",
        "volumeset/shop/data@there": "deletes-volumes",
        "gvc/shop": "deletes-volumes",
    }


def test_a_renamed_resource_is_shown_as_one(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(workload("old"), workload("other", "{a: b}")), prune=FREE)
    harness.applied()
    harness.commit(shop(workload("new"), workload("other", "{a: b}")))
    plan = harness.plan()
    assert [(str(rename.before), str(rename.after)) for rename in plan.renames] == [
        ("workload/shop/old", "workload/shop/new")
    ]
    assert not plan.hold_digest


def test_a_renamed_volume_set_waits_with_all_that_wants_it(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(VOLUMES.format(name="old"), stateful("db", "old")), prune=FREE)
    harness.applied()
    harness.commit(shop(VOLUMES.format(name="new"), stateful("db", "new")))
    plan = harness.plan()
    assert [str(rename.after) for rename in plan.renames] == ["volumeset/shop/new"]
    waiting = {placed(step) for step in plan.steps if step.hold is not Hold.NONE}
    assert waiting == {f"volumeset/shop/{name}@{location}" for name in ("old", "new") for location in ("here", "there")}
    shown = render_plan_text(plan)
    assert "+ volumeset/shop/new  at here, there  waits for approval: it replaces volumes" in shown
    assert "- volumeset/shop/old  at here, there  waits for approval: it deletes volumes" in shown
    assert "~ workload/shop/db  at here, there  waits for volumeset/shop/new, which waits for approval" in shown
    assert "Plan: 1 to create, 1 to update, 1 to delete (2 wait for approval, 1 waits for one of them)." in shown
    assert "(waits for volumeset/shop/new, which waits for approval)" in render_markdown(plan)
    blocked = {step["blocked_by"] for step in build_plan_document(plan)["steps"] if step["key"] == "workload/shop/db"}
    assert blocked == {"volumeset/shop/new@here", "volumeset/shop/new@there"}
    assert build_plan_document(plan)["summary"]["blocked"] == 1
    assert harness.apply().outcome == "waiting"
    mounted = {location: record.body for location, record in harness.recorded().items() if "db" in location}
    assert all(b"volumeset/old" in body for body in mounted.values())
    harness.approve(plan.hold_digest)
    harness.applied()
    assert "volumeset/shop/old@here" not in harness.recorded()


def test_a_replacement_waits_and_is_done_once_it_is_approved(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(workload("a"), workload("b")))
    harness.applied()
    allowed = workload("a", "{reconciler/allow-replace: true}").replace("standard", "stateful")
    harness.commit(shop(allowed, workload("b")))
    plan = harness.plan()
    assert harness.apply().outcome == "waiting"
    assert {record.version for record in harness.recorded().values()} == {1}
    harness.approve(plan.hold_digest)
    harness.applied()
    assert harness.recorded()["workload/shop/a@here"].version == 2
    assert harness.plan().steps == ()


def test_a_location_that_is_bound_no_more_deletes_nothing_there(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, shop(workload("a")))
    harness.applied()
    harness.settings = type(harness.settings)(
        org="acme",
        sources=harness.settings.sources,
        state=tmp_path,
        locations={"here": harness.places["here"]},
        external=("//location/there",),
    )
    harness.pipeline = harness.new_pipeline()
    assert harness.plan().steps == ()
    harness.commit(shop(workload("b")))
    assert holds(harness.plan()) == {"workload/shop/a@here": ""}


def test_a_gvc_goes_last_once_its_volumes_may_go(tmp_path: Path) -> None:
    files = shop(VOLUMES.format(name="data"), stateful("db", "data"))
    harness = PipelineHarness(tmp_path, files | {"z/gvc.yaml": BASE.replace("shop", "z")}, prune=FREE)
    harness.applied()
    harness.commit(dict.fromkeys(files))
    for _ in range(2):
        assert harness.apply().outcome == "waiting"
        assert {"gvc/shop", "volumeset/shop/data@here"} < harness.recorded().keys()
        assert not any("workload" in place for place in harness.recorded())
        harness.pipeline = harness.new_pipeline()
    harness.approve(harness.plan().hold_digest)
    harness.applied()
    assert harness.recorded().keys() == {"gvc/z"}


def test_without_pruning_a_link_to_a_removed_resource_stays_valid(tmp_path: Path) -> None:
    harness = PipelineHarness(
        tmp_path, shop(identity("me"), workload("web", spec=USES_ME)), prune=PruneSettings(enabled=False)
    )
    harness.applied()
    harness.commit(shop(workload("web", spec=USES_ME)))
    assert [str(each.key) for each in harness.plan().retained] == ["identity/shop/me"]


USES_ME = "identityLink: //identity/me, containers: [{name: main, image: nginx:1}]"


QUERY = BASE.replace(
    "locationLinks: [//location/here, //location/there]",
    "locationQuery: {kind: location, spec: {match: all, terms: [{tag: tier, value: front}]}}",
)


@pytest.mark.parametrize("tag", ['platform/protected: "true"', "reconciler/prune: disabled"])
def test_members_of_a_retained_gvc_stay_where_they_are(tmp_path: Path, tag: str) -> None:
    gvc = BASE.replace("name: shop", f"name: shop\ntags: {{{tag}}}")
    harness = PipelineHarness(tmp_path, {"gvc.yaml": gvc, "api.yaml": workload("api") + "gvc: shop\n"})
    harness.applied()
    harness.commit({"gvc.yaml": None})
    plan = harness.plan()
    assert (plan.steps, [str(each.key) for each in plan.retained]) == ((), ["gvc/shop"])


@pytest.mark.parametrize("retained", [True, False])
def test_workloads_stay_at_a_queried_location_while_it_is_retained(tmp_path: Path, retained: bool) -> None:
    tags = f"{{tier: front, reconciler/prune: {'disabled' if retained else 'enabled'}}}"
    location = f"kind: location\nname: here\nprovider: byok\ntags: {tags}\n"
    harness = PipelineHarness(tmp_path, shop(workload("api"), gvc=QUERY) | {"location.yaml": location}, prune=FREE)
    harness.applied()
    assert "workload/shop/api@here" in harness.recorded()
    harness.commit({"location.yaml": None})
    gone = set() if retained else {"location/here", "workload/shop/api@here"}
    assert holds(harness.plan()).keys() == gone
    harness.applied()
    assert ("workload/shop/api@here" in harness.recorded()) is retained
