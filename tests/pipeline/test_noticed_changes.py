"""What an engine notices is observed alone; the rest of its location, and other locations, stay as they were seen."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from reconciler.engines.protocol import Observation
from reconciler.model.key import Key
from tests.pipeline.drift_harness import KEY, SHOP, WEB, DriftHarness
from tests.support.engines import LedgerEngine

API = "workload/shop/api"


class WatchedLedger(LedgerEngine):
    """Counts what it is asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[frozenset[Key] | None] = []

    async def observe(self) -> list[Observation]:
        """All of it."""
        self.asked.append(None)
        return await super().observe()

    async def observe_some(self, keys: Collection[Key]) -> list[Observation]:
        """Some of it."""
        self.asked.append(frozenset(keys))
        return [seen for seen in await super().observe() if seen.key in keys]

    async def changes(self) -> None:  # type: ignore[override]
        """Nothing asks for them here."""
        raise NotImplementedError


class WatchedDriftHarness(DriftHarness):
    """Two workloads at ``here``, applied and observed once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, {**SHOP, "shop/api.yaml": WEB.replace("name: web", "name: api")})
        self.ledger = self.engines["here"] = WatchedLedger(path / "watched")
        self.monitor = self.new_monitor()
        self.applied()
        self.check()
        self.ledger.asked.clear()

    def notice(self, *keys: str) -> set[str]:
        """The engine notices changes of ``keys``, or of anything."""
        self.monitor.notice("here", frozenset(map(Key.parse, keys)))
        return asyncio.run(self.monitor.check_noticed())


def test_only_what_was_noticed_is_observed_and_compared(tmp_path: Path) -> None:
    harness = WatchedDriftHarness(tmp_path)
    harness.another_image()
    harness.another_image("nginx:8", API)
    assert harness.notice(KEY) == {"main"}
    assert harness.ledger.asked == [frozenset({Key.parse(KEY)})]
    assert [line.split()[0] for line in harness.differs()] == [KEY]
    harness.notice(API)
    assert [line.split()[0] for line in harness.differs()] == [API, KEY], "what was found before is not over"


def test_what_is_gone_and_what_is_as_applied_again_is_noticed(tmp_path: Path) -> None:
    harness = WatchedDriftHarness(tmp_path)
    there = harness.ledger.resources()[KEY]
    harness.ledger.meddle(KEY)
    assert harness.notice(KEY) == {"main"}
    assert harness.monitor.health_changed
    harness.ledger.meddle(KEY, **there)
    harness.notice(KEY)
    assert harness.differs() == []


def test_many_notices_are_one_check_and_one_without_keys_is_of_everything(tmp_path: Path) -> None:
    harness = WatchedDriftHarness(tmp_path)
    harness.monitor.notice("here", frozenset({Key.parse(API)}))
    harness.notice(KEY)
    assert harness.ledger.asked == [frozenset({Key.parse(API), Key.parse(KEY)})]
    harness.monitor.notice("here", frozenset())
    harness.notice(KEY)
    assert harness.ledger.asked[1:] == [None]
    assert asyncio.run(harness.monitor.check_noticed()) == set()
    assert len(harness.ledger.asked) == 2, "nothing is left to look at"


def test_a_location_that_this_process_has_not_seen_is_observed_as_a_whole(tmp_path: Path) -> None:
    harness = WatchedDriftHarness(tmp_path)
    harness.monitor = harness.new_monitor()
    harness.notice(KEY)
    assert harness.ledger.asked == [None]


def test_a_whole_check_covers_what_was_noticed_before(tmp_path: Path) -> None:
    harness = WatchedDriftHarness(tmp_path)
    harness.monitor.notice("here", frozenset({Key.parse(KEY)}))
    harness.check()
    asyncio.run(harness.monitor.check_noticed())
    assert harness.ledger.asked == [None]
