"""The disk space that the records reserve: taken where there is enough, released where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.errors import DiskFull
from reconciler.records.reserve import LOW_BYTES, REQUESTS_BYTES, RESERVE_BYTES, ROOM, DiskReserve, retry_with_reserve
from reconciler.records.store import Records
from tests.support.programs import fill, only_root, small_disk

SMALL = only_root("mounts a file system of its own")


def free(disk: Path) -> int:
    """Bytes that are left."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def write(records: Records, count: int) -> None:
    """So many requests of a kilobyte."""
    for number in range(count):
        records.requests.add("apply", {"number": number, "text": "x" * 1000}, "ada")


def test_records_in_memory_hold_nothing() -> None:
    reserve = DiskReserve(None)
    reserve.restore()
    reserve.release()
    assert reserve.full
    assert not reserve.was_released()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "reserve").symlink_to(tmp_path / "elsewhere")
    DiskReserve(tmp_path / "reserve").restore()
    assert not (tmp_path / "elsewhere").exists()


@SMALL
def test_it_is_made_where_there_is_room_and_holds_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", f"size={ROOM * RESERVE_BYTES + (1 << 20)}") as disk:
        reserve = DiskReserve(disk / "reserve")
        reserve.restore()
        found = (disk / "reserve").stat()
        assert (found.st_size, found.st_mode & 0o777) == (RESERVE_BYTES, 0o600)
        assert found.st_blocks * 512 >= RESERVE_BYTES
        assert not reserve.full
        filler = fill(disk)
        assert free(disk) < LOW_BYTES
        reserve.restore()
        assert reserve.full
        reserve.release()
        assert (reserve.was_released(), reserve.was_released()) == (True, False)
        assert free(disk) >= RESERVE_BYTES - REQUESTS_BYTES
        again = DiskReserve(disk / "reserve")
        for each in (reserve, again):
            each.restore()
            assert each.full, "what it gave up itself is no room"
        filler.unlink()
        reserve.restore()
        assert not reserve.full
        assert (disk / "reserve").stat().st_size == RESERVE_BYTES


@SMALL
def test_it_is_not_made_where_it_would_take_what_is_needed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", f"size={ROOM * RESERVE_BYTES - (1 << 20)}") as disk:
        reserve = DiskReserve(disk / "reserve")
        reserve.restore()
        assert not reserve.full
        assert not (disk / "reserve").exists()


@SMALL
def test_records_that_cannot_be_written_are_written_the_next_time(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=16m") as disk:
        records = Records.open(disk / "records.sqlite")
        records.reserve.restore()
        fill(disk)
        with pytest.raises(DiskFull):
            write(records, 1000)
        assert records.reserve.was_released()
        assert (disk / "reserve").stat().st_size == REQUESTS_BYTES
        records.requests.add("apply", {"number": -1}, "ada")
        records.close()


@SMALL
def test_a_part_is_left_for_a_request_though_the_rest_is_taken_at_once(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=16m") as disk:
        records = Records.open(disk / "records.sqlite")
        records.reserve.restore()
        fill(disk)
        with pytest.raises(DiskFull):
            write(records, 1000)
        fill(disk)
        with pytest.raises(DiskFull):
            write(records, 1000)
        assert retry_with_reserve(records.reserve, lambda: records.requests.add("restart", {"text": "x" * 9000}, "ada"))
        assert (disk / "reserve").stat().st_size == 0
        fill(disk)
        with pytest.raises(DiskFull):
            retry_with_reserve(records.reserve, lambda: write(records, 1000))
        records.close()


@SMALL
def test_a_small_disk_recovers_too(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", f"size={2 * RESERVE_BYTES}") as disk:
        reserve = DiskReserve(disk / "reserve")
        filler = fill(disk)
        reserve.release()
        reserve.restore()
        assert reserve.full
        filler.unlink()
        reserve.restore()
        assert not reserve.full
