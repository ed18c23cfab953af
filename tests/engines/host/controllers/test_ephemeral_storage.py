"""Replicas over the limit of ephemeral storage are replaced, and a measurement costs next to nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.host.controllers import ephemeral_storage
from reconciler.engines.host.controllers.ephemeral_storage import (
    GIGABYTE,
    LEAST,
    MEASURE_SECONDS,
    SHARE,
    EphemeralStorage,
    storage_limit,
    storage_used,
)
from reconciler.engines.host.decisions.replica import Phase, Replica, ReplicaContainer
from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.model.key import Key, Kind
from reconciler.tasks import cancel_and_wait
from tests.engines.host.fake import QuickClock
from tests.engines.host.test_versions import WEB, HostHarness, played
from tests.support.pace import in_time

SHOP = Key(Kind.WORKLOAD, "shop", "web")


def replica(*cpus: int, name: str = "web-1") -> Replica:
    """One whose containers ask for that many millicores."""
    wanted = (ContainerSpec(f"c{number}", cpu=cpu) for number, cpu in enumerate(cpus))
    return Replica(
        name, SHOP, 1, "s", 0.0, tuple(ReplicaContainer(each.name, Phase.RUNNING, wanted=each) for each in wanted)
    )


@pytest.mark.parametrize(
    ("cpus", "limit"), [((50,), 1.0), ((1000,), 1.0), ((600, 600), 1.2), ((4000, 500), 4.5), ((), 1.0)]
)
def test_the_limit_grows_with_the_cores_above_one(cpus: tuple[int, ...], limit: float) -> None:
    assert storage_limit(replica(*cpus)) == int(limit * GIGABYTE)


def storage(root: Path) -> EphemeralStorage:
    """Of a location whose containers write below ``root``."""

    def written(place: ContainerId) -> tuple[Path, ...]:
        return (root / "run" / place.replica / place.container / "output",)

    return EphemeralStorage(root / "scratch", written, SystemClock(), Replicas([]))


class Replicas:
    """``live`` replicas, and the names of those that were evicted."""

    def __init__(self, live: list[Replica]) -> None:
        self.live = live
        self.evicted: list[str] = []

    def live_replicas(self) -> list[Replica]:
        """All of them."""
        return self.live

    def evict(self, replica: Replica, _message: str) -> None:
        """It uses too much."""
        self.evicted.append(replica.name)


def test_private_files_and_output_of_replicas_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ephemeral_storage, "GIGABYTE", 1_000_000)
    (tmp_path / "elsewhere").write_bytes(bytes(5_000_000))
    for name in ("fine", "files", "output"):
        folder = tmp_path / "scratch" / "shop" / "web" / name / "deep" / "er"
        folder.mkdir(parents=True)
        (folder / "small").write_bytes(bytes(400_000))
        (folder / "link").symlink_to(tmp_path / "elsewhere")
        with (folder / "sparse").open("wb") as file:
            file.truncate(10**12)
    (tmp_path / "scratch/shop/web/files/deep/more").write_bytes(bytes(700_000))
    (tmp_path / "run/output/c0").mkdir(parents=True)
    (tmp_path / "run/output/c0/output").write_bytes(bytes(700_000))
    replicas = [replica(50, name=name) for name in ("fine", "files", "output", "missing")]
    found = storage(tmp_path).find_excess(replicas)
    assert [each.name for each, _ in found] == ["files", "output"]
    assert all(1_100_000 <= used < 1_300_000 for _, used in found)


def test_files_without_content_and_endless_depth_count_too(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert storage_used([tmp_path], 10**9) >= 100 * LEAST
    assert storage_used([tmp_path], 40 * LEAST) >= 40 * LEAST
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        for _ in range(60):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
    finally:
        os.chdir(here)
    assert storage_used([tmp_path], 10**9) == 10**9
    remove_tree(tmp_path / ("d" * 200))


def test_measuring_a_hundred_replicas_takes_half_a_percent_of_a_core_at_most(tmp_path: Path) -> None:
    replicas = [replica(50, name=f"web-{number}") for number in range(100)]
    for each in replicas:
        for name in ("home", "scratch", "volumes"):
            (tmp_path / "scratch/shop/web" / each.name / ".own/c0" / name).mkdir(parents=True)
    looking = storage(tmp_path)
    assert in_time(lambda: looking.find_excess(replicas), MEASURE_SECONDS * SHARE)[0] == []


def test_a_replica_that_uses_too_much_is_replaced_and_its_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ephemeral_storage, "GIGABYTE", 1_000_000)

    async def story(host: HostHarness) -> None:
        await host.apply(1)
        [before] = host.programs.places()
        scratch = tmp_path / "here/scratch/shop/web" / before.replica
        (scratch / "big").write_bytes(bytes(1_200_000))
        await host.until(lambda found: [each.ready for each in found] == [True] and host.programs.places() != [before])
        assert not scratch.exists()
        news = [event for event in host.engine.news() if event.reason == "Evicted"]
        assert [(str(event.key), event.reason.event_type) for event in news] == [(WEB, "Warning")]
        assert news[0].message.startswith(f"{before.replica} is replaced: it uses 1.2 GB of ephemeral storage")

    played(tmp_path, story)


async def test_a_flood_of_files_is_measured_at_once_and_a_quiet_disk_every_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ephemeral_storage, "GIGABYTE", 3_000_000)
    monkeypatch.setattr(ephemeral_storage, "SHRUNK", 1_000_000)
    files = tmp_path / "scratch" / "shop" / "web" / "web-1"
    files.mkdir(parents=True)
    free = iter(range(1 << 40, 0, -700_000))
    flooded: list[int] = []
    monkeypatch.setattr(ephemeral_storage, "_get_free_bytes", lambda _: next(free) if flooded else 1 << 40)
    clock, measured, replicas = QuickClock(), list[float](), Replicas([replica(50)])

    class MeasuredStorage(EphemeralStorage):
        def find_excess(self, replicas: Sequence[Replica]) -> list[tuple[Replica, int]]:
            measured.append(clock.monotonic())
            found = super().find_excess(replicas)
            self._cost = 0.0
            return found

    looking = MeasuredStorage(tmp_path / "scratch", lambda _: (), clock, replicas)
    running = asyncio.create_task(looking.run(), name="measure")
    await clock.advance(30.0)
    assert measured == [10.0, 20.0, 30.0]
    flooded.append(1)
    (files / "flood").write_bytes(bytes(4_000_000))
    await clock.advance(4.0)
    await cancel_and_wait([running], "measuring")
    assert measured[3] < 34.0
    assert replicas.evicted[0] == "web-1"
