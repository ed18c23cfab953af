"""The cost of a change follows what changes and not what there is: at ten times the size at most 1.5 times the work.

The first change is not counted: it fills caches, as in a daemon.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pygit2.repository import BaseRepository

from tests.cost.changes import CHANGES
from tests.cost.sandbox import Cost, CostHarness
from tests.cost.shop import Files, shop, workload
from tests.support.examples import thin_out
from tests.support.work import counted

FEW, MANY = 40, 400
MOST = 1.5
SLACK = Cost(calls=300, statements=5, instructions=100, decodes=0, checks=0, objects=1, bytes=20_000)
"""What a count may differ by for other reasons. A status directory is divided from 512 entries of 40 bytes on."""


@pytest.mark.parametrize("name", thin_out(CHANGES))
def test_a_change_costs_the_same_among_more_resources(tmp_path: Path, name: str) -> None:
    few, many = (cost_of(tmp_path, name, count) for count in (FEW, MANY))
    over = {
        field: (before, after)
        for field, before, after, slack in zip(Cost._fields, few, many, SLACK, strict=True)
        if after > MOST * before + slack
    }
    assert over == {}


def cost_of(path: Path, name: str, count: int) -> Cost:
    """The cost of the second change among ``count`` resources."""
    (path / str(count)).mkdir()
    measured = CHANGES[name](path / str(count), count, False)
    measured.change(1)
    measured.follow()
    measured.change(2)
    return measured.harness.cost(measured.follow)


def test_a_commit_of_many_workloads_reads_the_resources_around_them_in_batches(tmp_path: Path) -> None:
    def shops(count: int, image: int) -> Files:
        files: Files = {}
        for number in range(count):
            files |= shop(1, name=f"shop-{number}")
            files[f"shop-{number}/0.yaml"] = workload(0, gvc=f"shop-{number}", image=image)
        return files

    costs = []
    for count in (10, 50):
        harness = CostHarness(tmp_path / str(count), {"main": shops(count, 1)})
        harness.commit(shops(count, 2))
        costs.append(harness.cost(harness.poll))
    few, many = costs
    assert (few.decodes, many.decodes) == (10, 50)  # and not the secret, of which no cache has the value
    # Eleven of them for each workload are of triggers, twice for its two locations: they record its change for watches,
    # and whether it is applied.
    assert many.statements - few.statements <= (13 + 11) * (50 - 10)


def test_a_poll_reads_no_object_only_to_see_that_it_exists(tmp_path: Path) -> None:
    harness = CostHarness(tmp_path, {"main": shop(FEW)})
    harness.commit(shop(FEW) | {"shop/0.yaml": workload(0, image=2)})
    with counted() as work:
        harness.poll()
    # It reads whole trees, and one of ten thousand folders takes three milliseconds.
    assert work.calls_of(BaseRepository.__contains__) == 0


def test_one_document_of_a_file_is_decoded_alone(tmp_path: Path) -> None:
    def documents(count: int, image: int) -> Files:
        return {"all.yaml": "---\n".join({**shop(count), "shop/3.yaml": workload(3, image=image)}.values())}

    costs = []
    for count in (FEW, MANY):
        harness = CostHarness(tmp_path / str(count), {"main": documents(count, 1)})
        harness.commit(documents(count, 2))
        costs.append(harness.cost(harness.poll))
    few, many = costs
    assert few.decodes == many.decodes == 2  # the changed one, and the secret, of which no cache has the value
    # The other documents come from the cache and are compared: no more than that grows, and no faster than the file.
    assert many.calls < MANY / FEW * few.calls
