"""Every kind of the platform goes the whole way: read, planned, recorded, shown, changed and deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.model.key import PLACED, Kind
from tests.support.command_sandbox import Desk
from tests.support.kinds import KINDS
from tests.support.pipeline import BASE, Way

FILES = {"shop/gvc.yaml": BASE, **{f"shop/{kind}.yaml": text for kind, text in KINDS.items()}}


@pytest.fixture
def way(tmp_path: Path) -> Way:
    found = Way(tmp_path, FILES)
    found.applied()
    return found


def test_a_manifest_of_every_kind_is_recorded_and_a_second_plan_is_empty(way: Way) -> None:
    recorded = way.recorded()
    assert {record.key.kind for record in recorded.values()} == set(Kind)
    assert {record.key.kind for record in recorded.values() if record.location} == set(PLACED)
    assert way.plan().steps == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_description_changes_in_place(way: Way, kind: Kind) -> None:
    path = f"shop/{kind}.yaml"
    lines = [line for line in KINDS[kind].splitlines() if not line.startswith("description")]
    way.commit({path: "\n".join([*lines, "description: CommandResult otherwise", ""])})
    assert {step.key.kind for step in way.plan().steps} == {kind}
    way.applied()
    assert way.plan().steps == ()


def test_deletes_have_an_order_that_links_allow(way: Way) -> None:
    way.commit({path: None for path in FILES if path != "shop/gvc.yaml"})
    order = [step.key.kind for step in way.plan().steps]
    assert order.index(Kind.GROUP) < order.index(Kind.SERVICEACCOUNT)
    assert order.index(Kind.IDENTITY) < order.index(Kind.CLOUDACCOUNT)


def test_every_kind_is_shown_by_the_commands(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {path: text for path, text in FILES.items() if isinstance(text, str)})
    desk.applied()
    for kind in Kind:
        result = desk.run("get", kind, "-o", "json")
        assert result.code == 0, result
        items = result.json["items"]
        assert [item["kind"] for item in items] == [kind] * len(items)
        assert items, kind
    assert "health: Healthy" in desk.status("_org/user/ada@example.com.yaml")
    assert "health: Healthy" in desk.status("_org/image/web%3Av3.yaml")
