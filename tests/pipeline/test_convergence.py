"""From any state to any desired state: after a plan is applied the next is empty."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.engines.protocol import Result
from reconciler.model.key import Key
from reconciler.planning.plan import Action, Plan, Step, StepId
from reconciler.records.store import Records
from tests.pipeline.random_repositories import AFAR, DesiredState, desired_states, files_of
from tests.project.tree import ROOT
from tests.support.engines import LedgerEngine
from tests.support.examples import examples
from tests.support.git import GitRepo
from tests.support.pipeline import PipelineHarness, placed

few = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


def out_of_order(plan: Plan) -> list[StepId]:
    """Steps that come before something they wait for."""
    seen: set[StepId] = set()
    early = []
    for step in plan.steps:
        seen.add(step.id)
        if not seen.issuperset(step.waits_for):
            early.append(step.id)
    return early


def misplaced(harness: PipelineHarness, plan: Plan) -> list[str]:
    """Creates and updates that come before a step of what they refer to, by the links themselves."""
    index = {step.id: number for number, step in enumerate(plan.steps)}
    wrong = []
    for step in plan.steps:
        if step.action is Action.DELETE:
            continue
        for reference in harness.records.desired.references(step.key):
            other = index.get(StepId(Key.parse(reference.target), step.location))
            other = index.get(StepId(Key.parse(reference.target), ""), -1) if other is None else other
            if other > index[step.id] and reference.bond != "none":
                wrong.append(f"{step.id} before {reference.target}")
    return wrong


def converge(harness: PipelineHarness) -> None:
    """Approve what waits, apply, and check that nothing is left."""
    plan = harness.plan()
    assert out_of_order(plan) == []
    if plan.hold_digest:
        harness.approve(plan.hold_digest)
    harness.applied()
    assert misplaced(harness, plan) == []
    assert harness.plan().steps == ()
    harness.state = harness.state.with_all_pending()
    assert harness.plan().steps == ()


def recorded_world(harness: PipelineHarness) -> dict[str, set[str]]:
    """Every recorded key with its locations."""
    locations: dict[str, set[str]] = {}
    for record in harness.records.applied.items():
        locations.setdefault(str(record.key), set()).add(record.location)
    return locations


@given(states=st.lists(st.tuples(desired_states(), st.integers(0, 3)), min_size=2, max_size=4))
@settings(few, max_examples=examples(40))
def test_after_a_plan_is_applied_the_next_is_empty(
    repo: GitRepo, tmp_path: Path, states: list[tuple[DesiredState, int]]
) -> None:
    harness = PipelineHarness(tmp_path, files_of(*states[0]), repo=repo, external=(AFAR,))
    for number, (resources, layout) in enumerate(states):
        if number:
            harness.commit(files_of(resources, layout), whole=True)
        converge(harness)
        assert recorded_world(harness).keys() == resources.keys()
        desired = dict(harness.records.desired.scan())
        assert all(record.digest == desired[str(record.key)] for record in harness.records.applied.items())
    harness.records.close()


@given(before=desired_states(), after=desired_states(), chance=st.randoms(use_true_random=False))
@settings(few, max_examples=examples(25))
def test_a_failure_leaves_undone_only_what_waits_for_it(
    repo: GitRepo, tmp_path: Path, before: DesiredState, after: DesiredState, chance: random.Random
) -> None:
    harness = PipelineHarness(tmp_path, files_of(before, 0), repo=repo, external=(AFAR,))
    engines = {engine: LedgerEngine(tmp_path / harness.branch / f"at-{engine}", engine) for engine in harness.engines}
    harness.engines = dict(engines)
    converge(harness)
    harness.commit(files_of(after, 0), whole=True)
    harness.approve(harness.plan().hold_digest)
    plan = harness.plan()
    refused = {step.id for step in plan.steps if chance.random() < 0.2}
    for place, engine in engines.items():
        engine.refuse = {str(one.key) for one in refused if one.location == place}
    harness.apply()
    ended = {step.id: harness.outcomes[step.id].result for step in plan.steps}
    for step in plan.steps:
        assert ended[step.id] is expected(step, step.id in refused, ended)
    for engine in engines.values():
        engine.refuse = set()
    converge(harness)
    harness.records.close()


def expected(step: Step, refused: bool, ended: dict[StepId, Result]) -> Result:
    """The outcome that a step must have, by its dependencies."""
    if all(ended[other] is Result.APPLIED for other in step.waits_for):
        return Result.FAILED if refused else Result.APPLIED
    return Result.SKIPPED


PLAN_ONCE = """
import json, sys
from pathlib import Path
from reconciler.clock import SystemClock
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.render.plan.json import build_plan_document
from reconciler.render.plan.markdown import render_markdown
from reconciler.render.plan.text import render_plan_text
from reconciler.records.store import Records
from reconciler.settings import load_settings
settings = load_settings(Path(sys.argv[1]) / "settings.yaml")
records = Records.open(settings.state / "records.sqlite", read_only=True)
plan = SourcePipeline(settings, settings.sources[0], records, SystemClock()).plan_revision().plan
print(json.dumps(build_plan_document(plan)), render_plan_text(plan), render_markdown(plan))
"""


def test_plans_are_the_same_bytes_for_every_hash_seed(tmp_path: Path) -> None:
    tried: list[DesiredState] = []

    @given(desired_states())
    @settings(few, max_examples=12, derandomize=True)
    def collect(resources: DesiredState) -> None:
        tried.append(resources)

    collect()
    tried.sort(key=len)
    before, after = tried[-1], tried[-2]
    records = Records.open(tmp_path / "records.sqlite")
    harness = PipelineHarness(tmp_path, files_of(before, 1), records=records, external=(AFAR,))
    harness.applied()
    harness.commit(files_of(after, 2), whole=True)
    assert len(harness.plan().steps) > 5
    records.close()
    (tmp_path / "settings.yaml").write_text(
        "org: acme\nstate: .\nsources: [{name: main, url: main.git, branch: main}]\n"
        "locations: {here: {engine: recorded}, there: {engine: recorded}}\n"
        f"external: [{AFAR}]\n"
    )
    command = [sys.executable, "-c", PLAN_ONCE, str(tmp_path)]
    outputs = {
        subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(outputs) == 1


def test_versions_count_what_had_to_be_applied_anew(tmp_path: Path) -> None:
    def web(**changed: object) -> DesiredState:
        spec = {"type": "standard", "containers": [{"name": "main", "image": "nginx:1"}]} | changed
        place = {"staticPlacement": {"locationLinks": ["//location/here", "//location/there"]}}
        return {
            "gvc/x": {"kind": "gvc", "name": "x", "spec": place},
            "workload/x/w": {"kind": "workload", "name": "w", "spec": spec},
        }

    changes = [
        (web(), 1),
        (web(defaultOptions={"autoscaling": {"maxScale": 3}}), 1),
        (web(defaultOptions={"debug": True}), 2),
        (web(defaultOptions={"debug": True, "suspend": True}), 2),
        (web(containers=[{"name": "main", "image": "nginx:2"}]), 3),
        (web(), 4),
    ]
    harness = PipelineHarness(tmp_path, files_of(changes[0][0], 0))
    for resources, version in changes:
        harness.commit(files_of(resources, 0), whole=True)
        converge(harness)
        versions = {placed(record): record.version for record in harness.records.applied.items(name="w")}
        assert versions == {"workload/x/w@here": version, "workload/x/w@there": version}
