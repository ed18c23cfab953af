"""Every kind of the platform goes the whole way: read, planned, recorded, shown, changed and deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.model.key import PLACED, Kind
from tests.support.command_sandbox import CommandSandbox
from tests.support.kinds import KINDS
from tests.support.pipeline import BASE, PipelineHarness

FILES = {"shop/gvc.yaml": BASE, **{f"shop/{kind}.yaml": text for kind, text in KINDS.items()}}


@pytest.fixture
def harness(tmp_path: Path) -> PipelineHarness:
    found = PipelineHarness(tmp_path, FILES)
    found.applied()
    return found


def test_a_manifest_of_every_kind_is_recorded_and_a_second_plan_is_empty(harness: PipelineHarness) -> None:
    recorded = harness.recorded()
    assert {record.key.kind for record in recorded.values()} == set(Kind)
    assert {record.key.kind for record in recorded.values() if record.location} == set(PLACED)
    assert harness.plan().steps == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_description_changes_in_place(harness: PipelineHarness, kind: Kind) -> None:
    path = f"shop/{kind}.yaml"
    lines = [line for line in KINDS[kind].splitlines() if not line.startswith("description")]
    harness.commit({path: "\n".join([*lines, "description: CommandResult otherwise", ""])})
    assert {step.key.kind for step in harness.plan().steps} == {kind}
    harness.applied()
    assert harness.plan().steps == ()


def test_deletes_have_an_order_that_links_allow(harness: PipelineHarness) -> None:
    harness.commit({path: None for path in FILES if path != "shop/gvc.yaml"})
    order = [step.key.kind for step in harness.plan().steps]
    assert order.index(Kind.GROUP) < order.index(Kind.SERVICEACCOUNT)
    assert order.index(Kind.IDENTITY) < order.index(Kind.CLOUDACCOUNT)


def test_every_kind_is_shown_by_the_commands(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path, {path: text for path, text in FILES.items() if isinstance(text, str)})
    sandbox.applied()
    for kind in Kind:
        result = sandbox.run("get", kind, "-o", "json")
        assert result.code == 0, result
        items = result.json["items"]
        assert [item["kind"] for item in items] == [kind] * len(items)
        assert items, kind
    assert "health: Healthy" in sandbox.status("_org/user/ada@example.com.yaml")
    assert "health: Healthy" in sandbox.status("_org/image/web%3Av3.yaml")
