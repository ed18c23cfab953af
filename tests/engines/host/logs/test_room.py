"""The logs of a location keep to their budget: the oldest go first, of any stream."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from reconciler.engines.host.logs import retention, tail
from reconciler.engines.host.logs.collector import EXPIRES, RETENTION
from reconciler.engines.host.logs.hole_punch import FreeRange, punch_hole
from reconciler.engines.host.runtimes.protocol import OutputForm
from tests.engines.host.logs.kit import LogHarness, place

MIB = 1 << 20


def noise(seed: int, size: int = MIB) -> bytes:
    return random.Random(seed).randbytes(size // 2).hex().encode() + b"\n"


def size(location: LogHarness) -> int:
    return sum(path.stat().st_size for path in location.root.rglob("*.rlog"))


def test_the_oldest_segments_of_all_streams_go_first(tmp_path: Path) -> None:
    location = LogHarness(tmp_path, budget=3 * MIB)
    old, busy = place("old", "old-1"), place("busy", "busy-1")
    location.taken("early\n", old)
    location.forget(old)
    location.output(old).unlink()
    for number in range(20):
        location.taken(b"%d\n" % number + noise(number), busy)
        location.wait(86_400)
        assert size(location) <= 3 * MIB
    left = [line for line in location.lines('{workload="busy"}') if len(line) < 3]
    assert left == [str(number) for number in range(20)][-len(left) :]
    assert 3 <= len(left) < 20
    assert location.lines('{workload="old"}') == []
    assert sorted(path.name for path in (location.root / "shop").iterdir()) == ["busy"]


def test_a_followed_stream_loses_old_lines_and_not_its_position(tmp_path: Path) -> None:
    location = LogHarness(tmp_path, budget=2 * MIB)
    quiet = place("quiet", "quiet-1")
    location.taken("early\nhalf", quiet)
    for number in range(8):
        location.taken(noise(number))
    assert location.lines('{workload="quiet"}') == []
    location.restarted()
    location.taken(" and half\n", quiet)
    assert location.lines('{workload="quiet"}') == ["half and half"]


def test_a_container_keeps_its_segments_over_a_restart(tmp_path: Path) -> None:
    location = LogHarness(tmp_path, budget=2 * MIB)
    location.taken("early\n", place("quiet", "quiet-1"))
    for number in range(6):
        location.restarted()
        location.taken(noise(number))
    location.taken("late\n", place("quiet", "quiet-1"))
    assert location.lines('{workload="quiet"}') == ["late"]


def test_streams_that_ended_count_by_what_they_take_of_the_disk(tmp_path: Path) -> None:
    location = LogHarness(tmp_path, budget=40 * 3 * 4096)
    for number in range(100):
        at = place("job", f"job-{number:03}")
        location.taken(f"{number}\n", at)
        location.forget(at)
        location.output(at).unlink()
    location.restarted()
    location.taken("x\n")
    left = location.lines('{workload="job"}')
    assert left == [str(number) for number in range(100)][-len(left) :]
    assert 30 <= len(left) <= 40


def end(location: LogHarness, name: str, workload: str = "job") -> None:
    """A replica that writes its name and is gone."""
    at = place(workload, name)
    location.taken(f"{name}\n", at)
    location.forget(at)
    location.output(at).unlink()


def test_logs_of_replicas_that_are_gone_for_long_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    location = LogHarness(tmp_path)
    end(location, "job-old")
    location.taken("web\n")
    now = location.clock.now()
    for segment in location.root.rglob("*.rlog"):
        os.utime(segment, (now, now))
    location.wait(RETENTION - 60)
    end(location, "job-new")
    location.collect()
    assert location.lines() == ["job-old", "web", "job-new"]
    location.wait(EXPIRES)
    location.collect()
    assert location.lines() == ["web", "job-new"]
    assert not (location.root / "shop" / "job" / "job-old").exists()
    assert location.collector.take_expired() == {place("job", "").key: {"job-old"}}


def test_short_lived_replicas_keep_only_the_newest_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST_GONE", 5)
    location = LogHarness(tmp_path)
    location.taken("web\n")
    end(location, "cron-1", "cron")
    names = [f"job-{number:03}" for number in range(12)]
    for at, name in enumerate(names):
        end(location, name)
        for segment in location.segments(place("job", name)):
            os.utime(segment, (at, at + location.clock.now()))
    location.wait(EXPIRES)
    location.collect()
    assert location.lines('{workload="job"}') == names[-5:]
    assert len(list((location.root / "shop" / "job").iterdir())) == 5
    assert location.lines('{gvc="shop",workload!="job"}') == ["cron-1", "web"]
    assert location.collector.take_expired() == {}


@pytest.mark.parametrize(
    ("free", "form"),
    [
        pytest.param(punch_hole, OutputForm.CRI, id="holes-CRI"),
        pytest.param(lambda *_: False, OutputForm.PLAIN, id="truncated-PLAIN"),
        pytest.param(punch_hole, OutputForm.PLAIN, id="holes-PLAIN", marks=pytest.mark.slow),
        pytest.param(lambda *_: False, OutputForm.CRI, id="truncated-CRI", marks=pytest.mark.slow),
    ],
)
def test_a_flood_loses_its_oldest_output_and_no_other_stream_loses_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: OutputForm, free: FreeRange
) -> None:
    monkeypatch.setattr(tail, "MOST_UNREAD", 8 * MIB)
    monkeypatch.setattr(tail, "LEFT_UNREAD", 2 * MIB)
    monkeypatch.setattr(tail, "SHORTENED_AT", MIB)
    begin = "2026-01-01T00:00:00.000000000Z stdout F " if form is OutputForm.CRI else ""
    location, flood, quiet = LogHarness(tmp_path, form=form, free=free), place("flood"), place("quiet", "quiet-1")
    location.taken(f"{begin}first\n", flood)
    location.write(f"{begin}all is well\n", quiet)
    for turn in range(3):
        numbers = range(turn * 200_000, (turn + 1) * 200_000)
        lines = "".join(f"{begin}{number:0100}\n" for number in numbers).encode()
        path = location.write(lines, flood)
        location.restarted()
        location.collect()
        assert path.stat().st_blocks * 512 <= 2 * MIB + (1 << 19)
    [(of, size)] = location.collector.take_dropped()
    assert (of, location.collector.take_dropped()) == (flood, [])
    assert len(lines) - 3 * MIB < size <= len(lines)
    texts = location.lines('{workload="flood"}')
    assert set(map(len, texts)) <= {5, 100}, "no line is cut"
    assert location.lines('{workload="quiet"}') == ["all is well"]
    location.write(f"{begin}last words\n", flood)
    location.collect()
    assert location.lines('{workload="flood"}')[-1] == "last words"
    if free is punch_hole:
        assert texts[0] == "first"
        assert len(texts) > 3 * 2 * MIB // 160
        assert texts[-1] == f"{599_999:0100}"


def test_a_flood_that_ended_while_no_daemon_ran_keeps_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "MOST_UNREAD", 8 * MIB)
    monkeypatch.setattr(tail, "LEFT_UNREAD", 2 * MIB)
    location = LogHarness(tmp_path)
    location.write(noise(1, 20 * MIB) + b"last words\n")
    location.restarted()
    location.forget(place())
    assert location.lines()[-1] == "last words"
    assert size(location) < 2 * MIB
