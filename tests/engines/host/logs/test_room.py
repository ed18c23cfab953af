"""The logs of a location keep to their budget: the oldest go first, of whatever stream."""

from __future__ import annotations

import random
from pathlib import Path

from tests.engines.host.logs.kit import Location, place

MIB = 1 << 20


def noise(seed: int, size: int = MIB) -> bytes:
    return random.Random(seed).randbytes(size // 2).hex().encode() + b"\n"


def size(location: Location) -> int:
    return sum(path.stat().st_size for path in location.root.rglob("*.rlog"))


def test_the_oldest_segments_of_all_streams_go_first(tmp_path: Path) -> None:
    location = Location(tmp_path, budget=3 * MIB)
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


def test_what_is_followed_loses_old_lines_and_not_its_place(tmp_path: Path) -> None:
    location = Location(tmp_path, budget=2 * MIB)
    quiet = place("quiet", "quiet-1")
    location.taken("early\nhalf", quiet)
    for number in range(8):
        location.taken(noise(number))
    assert location.lines('{workload="quiet"}') == []
    location.restarted()
    location.taken(" and half\n", quiet)
    assert location.lines('{workload="quiet"}') == ["half and half"]


def test_a_place_is_kept_also_where_a_restart_comes_between(tmp_path: Path) -> None:
    location = Location(tmp_path, budget=2 * MIB)
    location.taken("early\n", place("quiet", "quiet-1"))
    for number in range(6):
        location.restarted()
        location.taken(noise(number))
    location.taken("late\n", place("quiet", "quiet-1"))
    assert location.lines('{workload="quiet"}') == ["late"]


def test_streams_that_ended_count_by_what_they_take_of_the_disk(tmp_path: Path) -> None:
    location = Location(tmp_path, budget=40 * 4096)
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
