"""Several volume sets at the same moment: what they share is opened once, and written by one after the other."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.volumes.protocol import StoredVolume
from reconciler.engines.host.volumesets.replacements import Replacements
from reconciler.engines.volumes import VolumeId
from reconciler.model.key import Key
from tests.engines.host.kit import play_on
from tests.engines.host.volumesets.kit import SET, VolumeHarness, play
from tests.support.plans import ends, plan, step
from tests.support.waiting import PATIENCE

NAMES = [f"data-{number}" for number in range(16)]
KEYS = [Key.parse(f"volumeset/shop/{name}") for name in NAMES]


class _ConcurrentHarness(VolumeHarness):
    """A host that finds out itself how it can store volumes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        host = msgspec.structs.replace(self._settings.host, volumes="auto")
        self._settings = msgspec.structs.replace(self._settings, host=host)
        self.engine = self._made()


async def apply_all(host: VolumeHarness, **spec: Any) -> None:
    """Apply all volume sets in one plan."""
    whole = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd", **spec}
    steps = [
        step(str(key), body={"kind": "volumeset", "name": name, "spec": whole}, engine="host")
        for key, name in zip(KEYS, NAMES, strict=True)
    ]
    assert set(ends(await host.meanwhile(host.run(plan(*steps)))).values()) == {"applied"}


def test_what_the_host_can_do_is_found_out_once(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await apply_all(host)
        # Without the rights to mount images, each sentence is there once. With them, there is none.
        found = [each.message for each in host.news() if each.reason == "VolumesChecked"]
        assert len(found) == len(set(found))
        assert not any("volume-probe" in message for message in found), "no probe is in the way of another"

    play_on(lambda: _ConcurrentHarness(tmp_path), story)


def test_all_their_schedules_are_stored(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await apply_all(host, snapshots={"schedule": "* * * * *"})
        file = host.root / "snapshot-schedules.json"

        async def stored() -> bool:
            return file.exists() and sorted(json.loads(file.read_bytes())) == sorted(map(str, KEYS))

        await host.eventually(stored, "the file has all", pace=3.0)
        for _ in range(10):
            await host.time.advance(30.0)
            await asyncio.sleep(0.02)
        assert [str(each.reason) for each in host.news() if each.key in KEYS] == []

    play(tmp_path, story)


def test_a_read_that_ends_late_hides_no_change_that_was_read_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that read the volumes before one grew ends after the thread that read them afterwards."""

    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.running("db-0")
        sets = host.engine.location.volume_sets
        listed, read, goes_on = sets.store.list, threading.Event(), threading.Event()

        def list_late(key: Key) -> tuple[StoredVolume, ...]:
            volumes = listed(key)
            read.set()
            assert goes_on.wait(PATIENCE)
            return volumes

        with monkeypatch.context() as patch:
            patch.setattr(sets.store, "list", list_late)
            late = asyncio.create_task(sets.refresh(SET))
            await asyncio.to_thread(read.wait, PATIENCE)
        await asyncio.to_thread(sets.store.grow, VolumeId(SET, 0), 30.0)
        await sets.refresh(SET)
        goes_on.set()
        await late
        assert [each["currentSize"] for each in await host.volumes()] == [30]

    play(tmp_path, story)


async def test_all_their_replacements_are_stored(tmp_path: Path) -> None:
    replacements = Replacements(tmp_path)
    await asyncio.gather(*(replacements.begin(key, "new") for key in KEYS))
    await asyncio.gather(*(replacements.finish(key) for key in KEYS[:8]), *map(replacements.forget, KEYS[8:12]))
    later = Replacements(tmp_path)
    await later.open()
    assert [later.is_done(key, "new") for key in KEYS] == [True] * 8 + [False] * 8
    assert [later.is_open(key) for key in KEYS] == [False] * 12 + [True] * 4
