"""The history of what workloads used: bounded, of one life of a name each, and harmless where it cannot be kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.engines.usage_history import DAY, MINUTE, MINUTES, UsageHistory, UsagePoint
from reconciler.model.key import Key

WEB, API = Key.parse("workload/shop/web"), Key.parse("workload/shop/api")
BEGIN = 1_800_000_000.0


def point(minute: int, **amounts: float) -> UsagePoint:
    """A point of the ``minute`` since the beginning."""
    return UsagePoint(BEGIN + minute * MINUTE, **{"cpu": float(minute), "ready": 1, "wanted": 2, **amounts})


def size_of(root: Path) -> int:
    """The bytes that all files below ``root`` occupy."""
    return sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())


def test_points_come_back_as_they_were(tmp_path: Path) -> None:
    written = [UsagePoint(BEGIN, 12.5, 65_536.0, 2.5, 8.25, 3, 4), UsagePoint(BEGIN + 60, None, None, None, None, 0, 0)]
    history = UsageHistory(tmp_path / "history")
    history.append((WEB, each) for each in written)
    assert UsageHistory(tmp_path / "history").read(WEB, BEGIN + 60) == written
    assert history.read(API, BEGIN) == []


def test_a_file_has_one_day_and_never_grows_beyond_it(tmp_path: Path) -> None:
    history = UsageHistory(tmp_path)
    history.append((WEB, point(minute)) for minute in range(3 * MINUTES))
    end = BEGIN + (3 * MINUTES - 1) * MINUTE
    found = history.read(WEB, end)
    assert [each.cpu for each in found] == [float(minute) for minute in range(2 * MINUTES, 3 * MINUTES)]
    assert size_of(tmp_path) <= 48 * 1024
    assert history.read(WEB, end + 2 * DAY) == []


def test_a_file_of_few_points_occupies_little(tmp_path: Path) -> None:
    history = UsageHistory(tmp_path)
    history.append([(WEB, point(700))])
    assert size_of(tmp_path) <= 8 * 1024


def test_a_name_used_again_begins_without_the_past_of_another(tmp_path: Path) -> None:
    history = UsageHistory(tmp_path)
    history.append([(WEB, point(1)), (API, point(1))])
    history.forget(WEB)
    assert (history.read(WEB, BEGIN + 60), len(history.read(API, BEGIN + 60))) == ([], 1)
    history.append([(WEB, point(2))])
    assert [each.cpu for each in history.read(WEB, BEGIN + 120)] == [2.0]


def test_only_what_is_retained_stays(tmp_path: Path) -> None:
    history = UsageHistory(tmp_path)
    history.append([(WEB, point(1)), (API, point(1)), (Key.parse("workload/blog/db"), point(1))])
    history.retain({API})
    assert [path.name for path in tmp_path.rglob("*")] == ["shop", "api"]


def test_what_did_not_run_for_a_day_is_swept(tmp_path: Path) -> None:
    history = UsageHistory(tmp_path)
    history.append([(WEB, point(1)), (API, point(1))])
    os.utime(tmp_path / "shop/web", (1, 1))
    history.sweep()
    assert [path.name for path in tmp_path.rglob("*")] == ["shop", "api"]


@pytest.mark.parametrize("content", [b"", b"usage 1\n", b"usage 1\nhalf a point", b"another form of file\n" * 9000])
def test_a_damaged_file_is_empty_and_begins_again(tmp_path: Path, content: bytes) -> None:
    history = UsageHistory(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/web").write_bytes(content)
    assert history.read(WEB, BEGIN) == []
    history.append([(WEB, point(0))])
    assert history.read(WEB, BEGIN) == [point(0)]


def test_no_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "history/shop").mkdir(parents=True)
    (tmp_path / "other").write_bytes(b"of another")
    (tmp_path / "history/shop/web").symlink_to(tmp_path / "other")
    UsageHistory(tmp_path / "history").append([(WEB, point(0)), (API, point(0))])
    assert (tmp_path / "other").read_bytes() == b"of another"
    assert len(UsageHistory(tmp_path / "history").read(API, BEGIN)) == 1


def test_a_point_that_cannot_be_written_is_missing_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop").write_bytes(b"in the way of the folder")
    history = UsageHistory(tmp_path)
    history.append([(WEB, point(0)), (Key.parse("workload/blog/db"), point(0))])
    assert len(history.read(Key.parse("workload/blog/db"), BEGIN)) == 1
    assert history.read(WEB, BEGIN) == []
