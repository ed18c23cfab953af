"""A resource that moves to another file, workload or source stays the same, and nothing is lost on the way."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.command_sandbox import DB, SETTINGS, SHOP, CommandSandbox, workload
from tests.support.git import GitRepo

WEB = "workload/shop/web"
TWO = SETTINGS.replace("locations:", "  - {name: side, url: ./side, branch: main}\nlocations:")


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """Two sources: the shop itself in one, two more workloads of it in the other; both applied."""
    sandbox = CommandSandbox(tmp_path, SHOP, TWO)
    GitRepo.create(tmp_path / "side", {"shop/a.yaml": _member("a"), "shop/b.yaml": _member("b")})
    sandbox.applied()
    return sandbox


def _member(name: str) -> str:
    return workload(name, more="gvc: shop\n")


def _side_is_gone(sandbox: CommandSandbox) -> None:
    sandbox.settings.write_text(SETTINGS)
    sandbox.applied()


def test_a_resource_that_moves_to_another_file_is_the_same_one(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.commit({"shop/web.yaml": None, "shop/front/web.yaml": f"gvc: shop\n{workload('web')}"})
    assert sandbox.plan()["steps"] == []
    sandbox.applied()
    assert "path: shop/front/web.yaml" in sandbox.status("shop/workload/web.yaml")
    assert "version: 1" in sandbox.status("shop/workload/web.yaml")


def test_a_volume_set_is_let_go_by_one_workload_before_another_has_it(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.commit({"shop/db.yaml": DB.replace("name: db\n", "name: store\n")})
    steps = sandbox.plan()["steps"]
    position = {(step["action"], step["key"], step["location"]): number for number, step in enumerate(steps)}
    for location in ("here", "there"):
        gone, new = ("delete", "workload/shop/db", location), ("create", "workload/shop/store", location)
        assert position[gone] < position[new]
        assert f"workload/shop/db@{location}" in steps[position[new]]["waits_for"]
    assert not any(step["key"] == "volumeset/shop/data" and step["action"] != "update" for step in steps)


def test_resources_of_a_removed_source_are_orphaned_and_not_deleted(sandbox: CommandSandbox) -> None:
    def state() -> dict[str, tuple[bool, str]]:
        shown = sandbox.run("get", "workload", "a", "-o", "json").json
        return {each["type"]: (each["status"], each["reason"]) for each in shown["conditions"]}

    sandbox.settings.write_text(SETTINGS)
    assert state() == {"Ready": (True, "Orphaned")}, "the new settings count at once"
    sandbox.applied()
    sandbox.applied()
    assert state() == {"Ready": (True, "Orphaned")}
    output = sandbox.run("describe", "workload/shop/a").out
    assert re.search(r"^  Source +side \(no longer in the settings\)$", output, re.MULTILINE)
    assert re.search(r"^workload/shop/a +Recorded +yes .* Orphaned: ", sandbox.run("get").out, re.MULTILINE)
    [event] = [json.loads(line) for line in sandbox.run("events", "source/side", "-o", "json").out.splitlines()]
    assert (event["type"], event["reason"]) == ("Normal", "Orphaned")
    assert "2 resources of it stay unchanged until: reconciler adopt --all-of side --source NAME" in event["message"]
    assert sandbox.run("events", "workload/shop/a").out.count(" Orphaned ") == 1
    assert sandbox.run("history", "side").code == 0, "its history stays"
    assert sandbox.run("adopt", "--all-of", "side").code == 0
    sandbox.applied()
    assert "workload/shop/a" not in sandbox.recorded()


def test_resources_of_a_source_that_returns_are_no_orphans(sandbox: CommandSandbox) -> None:
    _side_is_gone(sandbox)
    sandbox.settings.write_text(TWO)
    sandbox.applied()
    assert (
        "rphaned"
        not in sandbox.run("get").out + sandbox.run("describe", "workload/shop/a").out.partition("\nEvents")[0]
    )


def test_resources_of_a_removed_source_survive_runs_of_others(sandbox: CommandSandbox) -> None:
    _side_is_gone(sandbox)
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    sandbox.applied()
    assert {"workload/shop/a", "workload/shop/b"} <= sandbox.recorded()
    assert sandbox.plan()["summary"]["delete"] == 0


def test_a_source_that_comes_back_owns_again_what_it_left(sandbox: CommandSandbox) -> None:
    _side_is_gone(sandbox)
    sandbox.settings.write_text(TWO)
    sandbox.applied()
    assert all(plan["steps"] == [] for plan in sandbox.plan())


def test_all_that_a_removed_source_left_can_be_taken_at_once(sandbox: CommandSandbox) -> None:
    _side_is_gone(sandbox)
    sandbox.settings.write_text(f"{SETTINGS}prune: {{count: 1}}\n")
    result = sandbox.run("adopt", "--all-of", "side")
    assert result.out.splitlines()[0] == (
        "2 resources of side belong to the source main, which deletes those that are not in its Git"
    )
    plan = sandbox.plan()
    assert {step["key"] for step in plan["steps"]} == {"workload/shop/a", "workload/shop/b"}
    assert plan["hold_digest"], "more than a run may delete by itself"
    assert sandbox.run("approve", plan["hold_digest"]).code == 0
    sandbox.applied()
    assert not {"workload/shop/a", "workload/shop/b"} & sandbox.recorded()


def test_an_adopted_resource_in_git_stays_unchanged(sandbox: CommandSandbox) -> None:
    _side_is_gone(sandbox)
    sandbox.run("adopt", "--all-of", "side", "--source", "main")
    sandbox.commit({"shop/a.yaml": _member("a"), "shop/b.yaml": _member("b")})
    assert sandbox.plan()["steps"] == []
    sandbox.applied()
    assert "source: main" in sandbox.status("shop/workload/a.yaml")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--all-of", "main"), "the source main is in the settings, and owns what it applied"),
        (("--all-of", "none"), "no source 'none' has any resources here"),
        (("--all-of", "side", "--source", "mian"), "there is no source 'mian'; name its new source"),
        (("workload/shop/a", "--source", "mian"), "there is no source 'mian'; name its new source"),
        ((), "name either the KEY to adopt"),
        ((WEB, "--all-of", "side"), "name either the KEY to adopt"),
    ],
)
def test_adopt_refuses_what_it_cannot_adopt(sandbox: CommandSandbox, words: tuple[str, ...], complaint: str) -> None:
    _side_is_gone(sandbox)
    result = sandbox.run("adopt", *words)
    assert result.code != 0
    assert complaint in result.err
