"""Several sources over one set of records: each may need resources of others, and applies only its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from reconciler.errors import SourceRewritten
from reconciler.pipeline.runner import Runner
from tests.support.git import File
from tests.support.pipeline import BASE, PipelineHarness, placed, shown

IDENTITY = "kind: identity\nname: s\ngvc: shop\n"
USER = """kind: workload
name: api
gvc: shop
spec: {type: standard, identityLink: //identity/s, containers: [{name: main, image: nginx:1}]}
"""
THERE = ", //location/there"


def two(
    path: Path, *, first: dict[str | bytes, File], second: dict[str | bytes, File]
) -> tuple[PipelineHarness, PipelineHarness]:
    """Sources ``a`` and ``b``, both applied."""
    a = PipelineHarness(path / "a", first, name="a")
    a.applied()
    b = PipelineHarness(path / "b", second, name="b", records=a.records)
    b.applied()
    return a, b


def owners(harness: PipelineHarness) -> dict[str, str]:
    """The source of every record."""
    return {placed: record.source for placed, record in harness.recorded().items()}


def test_a_resource_that_another_source_needs_cannot_be_deleted(tmp_path: Path) -> None:
    a, _ = two(tmp_path, first={"g.yaml": BASE, "s.yaml": IDENTITY}, second={"w.yaml": USER})
    a.commit({"s.yaml": None})
    assert shown(a.prepare().findings) == [
        "s.yaml:0:0 missing-reference | identity/shop/s cannot be removed: "
        "workload/shop/api of source b (w.yaml) refers to it"
        " | "
        "remove the link in source b first, or list identity/shop/s under `external` in the settings"
    ]


def test_a_cycle_through_another_source_is_reported_where_this_one_closes_it(tmp_path: Path) -> None:
    first = "kind: identity\nname: z\ngvc: shop\n"
    other = "kind: identity\nname: b\ngvc: shop\ntags: {reconciler/depends-on: identity/shop/z}\n"
    a, _ = two(tmp_path, first={"g.yaml": BASE, "z.yaml": first}, second={"b.yaml": other})
    a.commit({"z.yaml": first + "tags: {reconciler/depends-on: identity/shop/b}\n"})
    [found] = shown(a.prepare().findings)
    assert found.startswith("z.yaml:4:31 dependency-cycle | these depend on each other in a cycle: identity/shop/z → ")


def test_each_source_follows_a_gvc_with_its_own_resources_alone(tmp_path: Path) -> None:
    gvc = BASE + "---\n" + IDENTITY
    a, b = two(tmp_path, first={"g.yaml": gvc.replace(THERE, "")}, second={"w.yaml": USER})
    a.commit({"g.yaml": gvc})
    assert [placed(step) for step in a.plan().steps] == ["gvc/shop"]
    a.applied()
    b.pipeline = b.new_pipeline()
    assert [placed(step) for step in b.plan().steps] == ["workload/shop/api@there"]
    b.applied()
    assert owners(b) == {
        "gvc/shop": "a",
        "identity/shop/s": "a",
        "workload/shop/api@here": "b",
        "workload/shop/api@there": "b",
    }
    a.applied()
    b.commit({"w.yaml": None, "i.yaml": "kind: identity\nname: i\ngvc: shop\n"})
    b.applied()
    assert not [key for key in b.recorded() if key.startswith("workload/")]


@pytest.mark.parametrize("body", [IDENTITY, IDENTITY + "description: other\n"], ids=["equal", "changed"])
def test_a_resource_that_moves_to_another_source_is_not_deleted(tmp_path: Path, body: str) -> None:
    protected = IDENTITY + "tags: {reconciler/prune: disabled}\n"
    moved = body.replace("type:", "tags: {reconciler/prune: disabled}\ntype:")
    identity = {"i.yaml": "kind: identity\nname: i\ngvc: shop\n"}
    a, b = two(tmp_path, first={"g.yaml": BASE, "s.yaml": protected}, second=dict(identity))
    a.commit({"s.yaml": None})
    assert a.apply().good
    b.commit({"s.yaml": moved})
    b.applied()
    assert owners(b)["identity/shop/s"] == "b"
    for pipeline in (a.pipeline, a.new_pipeline()):
        a.pipeline = pipeline
        plan = a.plan()
        assert (plan.steps, plan.retained) == ((), ())
    b.commit({"s.yaml": IDENTITY})
    b.applied()
    b.commit({"s.yaml": None})
    b.applied()
    assert "identity/shop/s" not in b.recorded()


def test_a_source_by_another_name_goes_on_where_the_old_one_ended(tmp_path: Path) -> None:
    files = {"g.yaml": BASE, "s.yaml": IDENTITY, "w.yaml": USER}
    old = PipelineHarness(tmp_path / "old", files, name="old")
    old.applied()
    before = old.recorded()
    new = PipelineHarness(tmp_path / "new", files, name="new", records=old.records)
    runner = Runner(new.settings, new.records, new.clock)
    asyncio.run(runner.open())
    new.pipeline = runner.pipelines["new"]
    assert new.plan().steps == ()
    new.applied()
    assert owners(new) == dict.fromkeys(before, "new")
    assert new.records.sources.names() == ["new"]
    new.commit({"w.yaml": None})
    new.applied()
    assert before.keys() - new.recorded().keys() == {"workload/shop/api@here", "workload/shop/api@there"}


def test_sources_follow_changes_of_each_other(tmp_path: Path) -> None:
    a = PipelineHarness(tmp_path / "a", {"g.yaml": BASE.replace(THERE, "")}, name="a")
    b = PipelineHarness(tmp_path / "b", {"w.yaml": USER}, name="b", records=a.records)
    both = msgspec.structs.replace(a.settings, sources=(*b.settings.sources, *a.settings.sources))
    runner = Runner(both, a.records, a.clock)

    def run(name: str) -> tuple[str, set[str]]:
        return asyncio.run(runner.run(name, "test")).outcome, set(runner.sources_to_requeue)

    assert run("b") == ("refused", set())
    assert run("a") == ("applied", {"b"})
    assert run("b") == ("refused", set())
    a.commit({"s.yaml": IDENTITY})
    assert run("a") == ("applied", {"b"})
    assert run("b") == ("applied", set())
    a.commit({"g.yaml": BASE})
    assert run("a") == ("applied", {"b"})
    assert not runner.has_nothing_to_do("b")
    assert run("b") == ("applied", set())
    assert "workload/shop/api@there" in a.recorded()
    assert runner.has_nothing_to_do("b")


def test_a_gvc_that_stays_where_it_is_leaves_the_other_sources_alone(tmp_path: Path) -> None:
    a = PipelineHarness(tmp_path / "a", {"g.yaml": BASE, "s.yaml": IDENTITY}, name="a")
    b = PipelineHarness(tmp_path / "b", {"w.yaml": USER}, name="b", records=a.records)
    c = PipelineHarness(tmp_path / "c", {"h.yaml": BASE.replace("shop", "toys")}, name="c", records=a.records)
    sources = (*a.settings.sources, *b.settings.sources, *c.settings.sources)
    runner = Runner(msgspec.structs.replace(a.settings, sources=sources), a.records, a.clock)

    def run(name: str) -> set[str]:
        assert asyncio.run(runner.run(name, "test")).outcome == "applied"
        return set(runner.sources_to_requeue)

    assert run("a") == run("b") == run("c") == set()
    a.commit({"g.yaml": f"{BASE}description: The shop\n"})
    assert run("a") == set()
    assert runner.has_nothing_to_do("b")
    # Only the source with a member of the moved GVC has work.
    a.commit({"g.yaml": BASE.replace(THERE, "")})
    assert run("a") == {"b"}
    assert not runner.has_nothing_to_do("b")
    assert runner.has_nothing_to_do("c")
    assert run("b") == set()
    assert "workload/shop/api@there" not in a.recorded()


def test_a_branch_that_was_reset_to_the_pinned_commit_counts_as_rewritten(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE})
    harness.applied()
    first = harness.commit({"shop/gvc.yaml": f"{BASE}tags: {{a: '1'}}\n"})
    harness.applied()
    harness.commit({"shop/gvc.yaml": f"{BASE}tags: {{a: '2'}}\n"})
    harness.applied()
    harness.records.pins.put("main", first, "HEAD~1", "", "ada")
    harness.applied()
    assert harness.has_nothing_to_do()
    harness.repo.git("update-ref", "refs/heads/main", first)
    harness.records.pins.remove("main")
    assert not harness.has_nothing_to_do()
    with pytest.raises(SourceRewritten):
        harness.prepare()
    harness.repo.commit({"shop/gvc.yaml": BASE}, parent=first)
    with pytest.raises(SourceRewritten):
        harness.prepare()
