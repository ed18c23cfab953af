"""The cost of reading follows the answer: no query for each resource, and no folder read for each finding."""

from __future__ import annotations

from pathlib import Path

from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.queries.resources import find_resources
from reconciler.render.excerpt import Excerpts
from reconciler.render.findings import findings_text
from reconciler.review.compare import plan_between
from reconciler.source.repository import Repository
from tests.cost.sandbox import CostHarness
from tests.cost.shop import shop, workload
from tests.support.work import Work, counted

FEW, MANY = 15, 150


def test_the_number_of_queries_of_get_does_not_follow_the_number_of_resources(tmp_path: Path) -> None:
    costs = []
    for count in (FEW, MANY):
        harness = CostHarness(tmp_path / str(count), {"main": shop(count)})
        rows: list[object] = []
        costs.append(
            harness.cost(
                lambda harness=harness, rows=rows: rows.extend(
                    find_resources(harness.settings, harness.records, None, None, None)
                )
            )
        )
        assert len(rows) == count + 4
    few, many = costs
    assert many.statements <= few.statements
    assert many.calls <= MANY / FEW * few.calls


def test_the_number_of_queries_of_a_first_plan_does_not_follow_the_number_of_gvcs(tmp_path: Path) -> None:
    costs = []
    for count in (FEW, MANY):
        files = {path: text for number in range(count) for path, text in shop(1, name=f"shop-{number}").items()}
        harness = CostHarness(tmp_path / str(count), {"main": files})
        costs.append(harness.cost(harness.runner.pipelines["main"].plan_revision))
    few, many = costs
    assert many.statements <= few.statements


def test_a_first_plan_reads_nothing_of_the_gvcs_of_other_sources(tmp_path: Path) -> None:
    costs = []
    for count in (FEW, MANY):
        others = {path: text for number in range(count) for path, text in shop(1, name=f"other-{number}").items()}
        del others["db.yaml"]
        harness = CostHarness(tmp_path / str(count), {"main": shop(3), "other": others})
        costs.append(harness.cost(harness.runner.pipelines["main"].plan_revision))
    few, many = costs
    assert many.statements <= few.statements


def test_a_comparison_of_two_commits_reads_each_of_them_once(tmp_path: Path) -> None:
    harness = CostHarness(tmp_path, {"main": shop(FEW)})
    harness.repos["main"].commit({f"shop/web-{number}.yaml": workload(number) for number in range(FEW, FEW + MANY)})
    with counted() as work:
        compared = plan_between(harness.settings, harness.settings.sources[0], "main~1", "main")
    assert compared.plan is not None
    assert len(compared.plan.steps) == MANY
    assert work.calls_of(SourcePipeline.plan_revision) == 2


def findings_shown(path: Path, count: int) -> Work:
    """The work of showing one finding in each of ``count`` files of a folder."""
    harness = CostHarness(path, {"main": shop(1)})
    bad = {
        f"shop/{number}.yaml": workload(number).replace("//identity/service", "//identity/servce")
        for number in range(count)
    }
    harness.commit(bad)
    prepared = harness.runner.pipelines["main"].plan_revision()
    with counted() as work:
        text = findings_text(prepared.findings, Excerpts(prepared.read))
    assert "".join(text).count("^^^") >= count
    return work


def test_many_findings_read_their_folder_once(tmp_path: Path) -> None:
    few, many = (findings_shown(tmp_path / str(count), count) for count in (FEW, MANY))
    assert few.calls_of(Repository.folder) == many.calls_of(Repository.folder) == 1
    assert many.calls <= MANY / FEW * few.calls
