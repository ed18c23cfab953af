"""What is remembered of the use of workloads, and over what."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.autoscaling.metrics import Used
from reconciler.engines.host.autoscaling.scaling import CapacityRecommender
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.model.kinds.workload import Autoscaling
from tests.engines.host.autoscaling.test_autoscaling import KEY, wanted_of

MIB = 2**20
WANTED = msgspec.structs.replace(
    wanted_of("standard", Autoscaling()),
    containers=(ContainerSpec("main", cpu=1000, memory=1024 * MIB), ContainerSpec("side", cpu=50, memory=40 * MIB)),
)
USED = {
    ContainerId(KEY, "web-1", "main"): Used(100.0, 200 * MIB),
    ContainerId(KEY, "web-2", "main"): Used(50.0, 300 * MIB),
    ContainerId(KEY, "web-1", "side"): Used(1.0, 10 * MIB),
}
ADVICE = {"main": (115, 345 * MIB), "side": (25, 32 * MIB)}


def taught(advisor: CapacityRecommender, minutes: int, begin: float = 0.0) -> CapacityRecommender:
    """``advisor`` after so many minutes of the same use."""
    for quarter in range(minutes * 4 + 1):
        advisor.observe(WANTED, USED, begin + quarter * 15)
    return advisor


def test_each_container_is_recommended_what_its_busiest_replica_needs(tmp_path: Path) -> None:
    assert taught(CapacityRecommender(tmp_path), 55).recommendations(WANTED) == {}
    assert taught(CapacityRecommender(tmp_path), 60).recommendations(WANTED) == ADVICE


def test_a_daemon_that_starts_goes_on_with_what_it_knew(tmp_path: Path) -> None:
    taught(CapacityRecommender(tmp_path), 40, begin=500_000)
    again = CapacityRecommender(tmp_path)
    assert again.recommendations(WANTED) == {}
    assert taught(again, 25, begin=20).recommendations(WANTED) == ADVICE, "the machine has started too"


def test_another_version_of_the_workload_knows_nothing(tmp_path: Path) -> None:
    advisor = taught(CapacityRecommender(tmp_path), 60)
    changed = msgspec.structs.replace(WANTED, digest="other")
    assert advisor.recommendations(changed) == {}
    advisor.observe(changed, USED, 3615)
    assert advisor.recommendations(changed) == advisor.recommendations(WANTED) == {}


def test_a_workload_without_capacity_ai_gets_no_recommendation_and_leaves_no_file(tmp_path: Path) -> None:
    advisor = taught(CapacityRecommender(tmp_path), 60)
    off = msgspec.structs.replace(WANTED, options=msgspec.structs.replace(WANTED.options, capacity_ai=False))
    assert advisor.recommendations(off) == {}
    assert [path.name for path in tmp_path.rglob("*.json")] == ["web.json"]
    advisor.observe(off, USED, 3615)
    assert list(tmp_path.rglob("*.json")) == []


def test_a_workload_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    taught(CapacityRecommender(tmp_path), 60).forget(KEY)
    assert CapacityRecommender(tmp_path).recommendations(WANTED) == {}
    CapacityRecommender(tmp_path).forget(KEY)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"main": {"digest": 1}}'])
def test_a_file_that_cannot_be_read_costs_the_history_only(tmp_path: Path, content: bytes) -> None:
    taught(CapacityRecommender(tmp_path), 60)
    (tmp_path / "shop" / "web.json").write_bytes(content)
    assert CapacityRecommender(tmp_path).recommendations(WANTED) == {}
    assert taught(CapacityRecommender(tmp_path), 60).recommendations(WANTED) == ADVICE


def test_a_file_that_cannot_be_written_costs_nothing_while_the_daemon_runs(tmp_path: Path) -> None:
    (tmp_path / "usage").write_text("a file where a folder should be")
    assert taught(CapacityRecommender(tmp_path / "usage"), 60).recommendations(WANTED) == ADVICE
