"""What an engine notices is observed alone; the rest of its location, and other locations, stay as they were seen."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from reconciler.engines.protocol import Observation
from reconciler.model.key import Key
from tests.pipeline.drift_harness import KEY, SHOP, WEB, Meddled
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


class Watched(Meddled):
    """Two workloads at ``here``, applied and observed once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, {**SHOP, "shop/api.yaml": WEB.replace("name: web", "name: api")})
        self.ledger = self.engines["here"] = WatchedLedger(path / "watched")
        self.lookout = self.fresh_lookout()
        self.applied()
        self.check()
        self.ledger.asked.clear()

    def notice(self, *keys: str) -> set[str]:
        """The engine notices changes of ``keys``, or of anything."""
        self.lookout.notice("here", frozenset(map(Key.parse, keys)))
        return asyncio.run(self.lookout.check_noticed())


def test_only_what_was_noticed_is_observed_and_compared(tmp_path: Path) -> None:
    way = Watched(tmp_path)
    way.another_image()
    way.another_image("nginx:8", API)
    assert way.notice(KEY) == {"main"}
    assert way.ledger.asked == [frozenset({Key.parse(KEY)})]
    assert [line.split()[0] for line in way.differs()] == [KEY]
    way.notice(API)
    assert [line.split()[0] for line in way.differs()] == [API, KEY], "what was found before is not over"


def test_what_is_gone_and_what_is_as_applied_again_is_noticed(tmp_path: Path) -> None:
    way = Watched(tmp_path)
    there = way.ledger.world()[KEY]
    way.ledger.meddle(KEY)
    assert way.notice(KEY) == {"main"}
    assert way.lookout.health_changed
    way.ledger.meddle(KEY, **there)
    way.notice(KEY)
    assert way.differs() == []


def test_many_notices_are_one_check_and_one_without_keys_is_of_everything(tmp_path: Path) -> None:
    way = Watched(tmp_path)
    way.lookout.notice("here", frozenset({Key.parse(API)}))
    way.notice(KEY)
    assert way.ledger.asked == [frozenset({Key.parse(API), Key.parse(KEY)})]
    way.lookout.notice("here", frozenset())
    way.notice(KEY)
    assert way.ledger.asked[1:] == [None]
    assert asyncio.run(way.lookout.check_noticed()) == set()
    assert len(way.ledger.asked) == 2, "nothing is left to look at"


def test_a_location_that_this_process_has_not_seen_is_observed_as_a_whole(tmp_path: Path) -> None:
    way = Watched(tmp_path)
    way.lookout = way.fresh_lookout()
    way.notice(KEY)
    assert way.ledger.asked == [None]


def test_a_whole_check_covers_what_was_noticed_before(tmp_path: Path) -> None:
    way = Watched(tmp_path)
    way.lookout.notice("here", frozenset({Key.parse(KEY)}))
    way.check()
    asyncio.run(way.lookout.check_noticed())
    assert way.ledger.asked == [None]
