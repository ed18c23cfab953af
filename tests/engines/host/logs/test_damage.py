"""Killed at any moment, short of room or damaged: what was taken is there once, and the rest is taken later."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from enum import Enum, member
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.engines.host.logs.blocks import all_in
from reconciler.engines.host.logs.collector import AGAIN
from tests.engines.host.logs.kit import LogHarness, place
from tests.support.examples import examples
from tests.support.programs import small_disk

WRITER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
number = 0
while True:
    lines = b"".join(b"%09d %s\\n" % (each, b"x" * (each % 200)) for each in range(number, number + 100))
    number += 100
    cut = number * 7 % len(lines)
    os.write(file, lines[:cut])
    os.write(file, lines[cut:])
    time.sleep(0.002)
"""

COLLECTOR = """
import asyncio, sys, time
from pathlib import Path
from reconciler.clock import SystemClock
from reconciler.engines.host.logs import tail as output
from reconciler.engines.host.logs.collector import Collector
from tests.engines.host.logs.kit import place
from tests.support.examples import examples
from tests.support.programs import small_disk
output.FREED_AT = 20_000
async def work():
    collector = Collector(Path(sys.argv[1]), "here", SystemClock())
    collector.watch(place(), Path(sys.argv[2]))
    while True:
        if (await collector.collect()).read:
            print("took", flush=True)
asyncio.run(work())
"""


def torn(location: LogHarness) -> None:
    """Killed in the middle of a block, which no power cut was needed for."""
    for segment in location.segments()[-1:]:
        with segment.open("ab") as file:
            file.write(b"RLB1 and then nothing more of the block")
    location.restarted()


def moved_on(location: LogHarness) -> None:
    """A day later, when the next block begins another segment."""
    location.clock.jump(86_400)


class Damage(Enum):
    COLLECT = member(LogHarness.collect)
    RESTART = member(LogHarness.restarted)
    TORN = member(torn)
    DAY = member(moved_on)
    WAIT = member(partial(LogHarness.wait, seconds=4))


@pytest.fixture
def location(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path)


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def killed(child: subprocess.Popen[str]) -> None:
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


@pytest.mark.parametrize("times", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_a_collector_killed_again_and_again_loses_no_line_and_repeats_none(location: LogHarness, times: int) -> None:
    there = location.output(place())
    rng = random.Random(7)
    writing = started(WRITER, there)
    try:
        for _ in range(times):
            collecting = started(COLLECTOR, location.root, there)
            assert collecting.stdout is not None
            assert collecting.stdout.readline() == "took\n"
            time.sleep(rng.random() * 0.1)
            killed(collecting)
    finally:
        killed(writing)
    location.restarted()
    location.collect()
    location.forget(place())
    lines = location.lines()
    whole = lines if len(lines[-1]) == 10 + (len(lines) - 1) % 200 else lines[:-1]
    assert whole == [f"{number:09} {'x' * (number % 200)}" for number in range(len(whole))]
    assert len(whole) > 1000
    assert there.stat().st_blocks * 512 < there.stat().st_size


def test_an_unfinished_write_is_cut_off_and_collected_again(location: LogHarness) -> None:
    for number in range(3):
        location.taken(f"line {number} " + "abc" * 100 * number + "\n")
    (segment,) = location.segments()
    content = segment.read_bytes()
    *_, before, end = [after for _, after in all_in(content)]
    assert end == len(content)
    written = location.lines()
    for cut in range(before, end):
        segment.write_bytes(content[:cut])
        assert location.lines() == written[:2]
        location.restarted()
        location.collect()
        assert location.lines() == written
        assert segment.read_bytes() == content


def test_garbage_at_the_end_is_no_line(location: LogHarness) -> None:
    location.taken("one\n")
    (segment,) = location.segments()
    for garbage in (b"\0" * 100, b"RLB1" * 30, segment.read_bytes()[:40], b"1BLR"):
        with segment.open("ab") as file:
            file.write(garbage)
        location.restarted()
        assert location.lines()[0] == "one"
        location.taken("more\n")
    assert location.lines() == ["one", *["more"] * 4]


@pytest.mark.parametrize("at", range(0, 150, 7))
def test_a_damaged_block_takes_no_other_with_it(location: LogHarness, at: int) -> None:
    for word in ("one", "two", "three"):
        location.taken(f"{word}\n" * 30)
    (segment,) = location.segments()
    content = bytearray(segment.read_bytes())
    (_, first), (_, second), _ = all_in(bytes(content))
    content[first + at % (second - first)] ^= 0x55
    segment.write_bytes(content)
    assert set(location.lines()) == {"one", "three"}
    location.restarted()
    location.taken("four\n")
    assert len(location.lines()) == 61


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.text(alphabet="ab\n", max_size=6)
        | st.sampled_from(["x" * 70_000, "y" * 300_000 + "\n"])
        | st.sampled_from(list(Damage)),
        max_size=25,
    )
)
def test_every_line_is_stored_once_in_any_order_of_events(course: list[str | Damage]) -> None:
    with tempfile.TemporaryDirectory() as room:
        location = LogHarness(Path(room), budget=1 << 30)
        written = ""
        for step in course:
            if isinstance(step, Damage):
                step.value(location)
            else:
                written += step
                location.write(step)
        location.collect()
        location.restarted()
        location.forget(place())
        lines = location.lines()
    assert "".join(lines).replace("…", "") == written.replace("\n", "")
    if Damage.WAIT not in course and len(written) < 60_000:
        assert lines == (written.removesuffix("\n").split("\n") if written else [])


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LogHarness]:
    """A location on a disk of its own, which its containers write to as well."""
    with small_disk(tmp_path / "disk", "size=24m") as disk:
        yield LogHarness(disk)


def fill(disk: Path, room: int) -> Path:
    filler = disk / "filler"
    free = os.statvfs(disk)
    with filler.open("wb") as out:
        os.posix_fallocate(out.fileno(), 0, free.f_bavail * free.f_frsize - room)
    return filler


def test_a_full_disk_drops_no_line(small: LogHarness, tmp_path: Path) -> None:
    small.taken("before\n")
    noise = random.Random(1).randbytes(3_000_000).hex().encode()
    small.write(noise[:1_000_000] + b"\n" + noise[1_000_000:] + b"\n")
    filler = fill(tmp_path / "disk", 8192)
    collected = small.collect()
    assert collected.trouble == "logs of here cannot be stored: No space left on device"
    assert small.collect().trouble == collected.trouble
    small.restarted()
    assert small.collect().trouble == collected.trouble
    filler.unlink()
    small.wait(AGAIN)
    assert small.collect().trouble == ""
    small.taken("after\n")
    assert small.written().encode() == b"before" + noise + b"after"


def test_a_container_is_not_forgotten_before_its_words_are_stored(small: LogHarness, tmp_path: Path) -> None:
    small.write(random.Random(1).randbytes(2_000_000).hex() + "\n")
    filler = fill(tmp_path / "disk", 8192)
    assert "No space left" in small.forget(place()).trouble
    filler.unlink()
    assert small.forget(place()).trouble == ""
    assert len(small.written()) == 4_000_000


def test_unreadable_output_is_reported_and_delays_no_other(location: LogHarness) -> None:
    location.write("x\n", place("bad"))
    location.output(place("bad")).unlink()
    location.output(place("bad")).mkdir()
    location.write("fine\n", place("good"))
    assert location.collect().trouble == "logs of here cannot be stored: Is a directory"
    assert location.lines() == ["fine"]
    location.output(place("bad")).rmdir()
    location.wait(AGAIN)
    assert location.collect().trouble == ""
