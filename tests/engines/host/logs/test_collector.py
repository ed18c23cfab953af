"""Output is collected whole, once and in order, also when files are replaced or the collector restarts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.engines.host.logs import collector, tail, writer
from reconciler.engines.host.logs.hole_punch import punch_hole
from tests.engines.host.logs.kit import LogHarness, place
from tests.support.clock import START
from tests.support.pace import in_time


@pytest.fixture
def location(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path)


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_lines_come_back_with_their_labels_and_the_time_at_which_they_were_read(location: LogHarness) -> None:
    location.taken("one\ntwo\n")
    location.wait(1.5)
    location.taken("three\n", place("api", "api-7", "side"))
    stored = [(line.ms, line.text, line.stream.labels()) for line in location.found()]
    web = {"gvc": "shop", "workload": "web", "replica": "web-1", "container": "main", "location": "here"}
    api = web | {"workload": "api", "replica": "api-7", "container": "side"}
    at = int(START * 1000)
    assert stored == [(at, b"one", web), (at, b"two", web), (at + 1500, b"three", api)]


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (b"a\r\nb\r\r\n", ["a", "b\r"]),
        (b"\n\na\n\n", ["", "", "a", ""]),
        (b"\n", [""]),
        (b"a\0b\n", ["a\0b"]),
    ],
)
def test_a_line_ends_at_its_line_break(location: LogHarness, written: bytes, lines: list[str]) -> None:
    location.taken(written)
    assert location.lines() == lines


def test_the_begin_of_a_line_waits_for_its_end(location: LogHarness) -> None:
    location.taken("one\nbeg")
    assert location.lines() == ["one"]
    location.wait(tail.PATIENCE - 1)
    location.taken("in")
    assert location.lines() == ["one"]
    location.taken("ning\n")
    assert location.lines() == ["one", "beginning"]


def test_the_begin_of_a_line_does_not_wait_for_ever(location: LogHarness) -> None:
    location.taken("prompt> ")
    location.wait(tail.PATIENCE)
    location.collect()
    assert location.lines() == ["prompt> "]
    location.taken("\nnext\n")
    assert location.lines() == ["prompt> ", "next"]
    location.taken("half")
    location.wait(tail.PATIENCE)
    location.collect()
    location.restarted()
    location.taken("\nlast\n")
    assert location.lines() == ["prompt> ", "next", "half", "last"]


def test_the_rest_of_a_line_that_waited_too_long_is_marked(location: LogHarness) -> None:
    location.taken("prompt> ")
    location.wait(tail.PATIENCE)
    location.collect()
    location.taken("yes\n")
    assert location.lines() == ["prompt> ", "…yes"]


@pytest.mark.parametrize("length", [65_536, 65_537, 131_072, 300_000])
def test_a_long_line_that_is_written_at_once_has_no_mark_at_its_ends(location: LogHarness, length: int) -> None:
    location.taken("before\n" + "x" * length + "\nafter\n")
    lines = location.lines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert not lines[1].startswith("…")
    assert not lines[-2].endswith("…")
    assert "".join(lines[1:-1]).replace("…", "") == "x" * length
    assert all(line.endswith("…") for line in lines[1:-2])


def test_a_begin_that_waited_does_not_take_the_next_one_with_it(location: LogHarness) -> None:
    location.taken("slow")
    location.wait(tail.PATIENCE)
    location.taken(" line\nanother beg")
    assert location.lines() == ["slow line"]
    location.taken("in\n")
    assert location.lines() == ["slow line", "another begin"]


@pytest.mark.parametrize("length", [65_536, 65_537, 150_000, 700_000])
def test_a_very_long_line_comes_in_parts_with_marks_where_it_was_cut(location: LogHarness, length: int) -> None:
    location.taken("x" * length)
    location.wait(tail.PATIENCE)
    location.collect()
    location.taken("\nafter\n")
    parts = location.lines()
    assert parts.pop() == "after"
    assert len(parts) == -(-length // 65_536)
    whole = [part.strip("…") for part in parts]
    assert "".join(whole) == "x" * length
    assert max(map(len, whole)) == 65_536
    last = len(parts) - 1
    assert [part.startswith("…") for part in parts] == [at > 0 for at in range(len(parts))]
    # A line of just one part that has had no end for seconds may still go on.
    assert [part.endswith("…") for part in parts] == [at < last or length == 65_536 for at in range(len(parts))]


def test_stored_output_is_freed_from_its_file(location: LogHarness) -> None:
    there = location.write("x" * 999 + "\n")
    with there.open("r+b") as file:
        if not punch_hole(file.fileno(), 0, 1):
            pytest.skip("this file system frees no parts of files")
    for number in range(3):
        location.taken(f"{number:0999}\n" * 1000)
    assert there.stat().st_size == 3_001_000
    assert on_disk(there) <= tail.FREED_AT + 4096
    location.restarted()
    location.taken("last\n")
    assert len(location.lines()) == 3002
    assert location.lines()[-2:] == ["2".zfill(999), "last"]


def test_a_file_whose_stream_was_thrown_away_is_read_from_where_it_holds_something(location: LogHarness) -> None:
    there = location.write("x" * 400_000 + "\n")
    location.collect()
    location.taken("y\n")
    for path in location.segments():
        path.unlink()
    location.restarted()
    location.taken("z\n")
    found = location.lines()
    assert found[-2:] == ["y", "z"]
    assert not any("\0" in line for line in found)
    assert there.stat().st_size == 400_005


@pytest.mark.parametrize("times", [1, 3])
def test_a_restart_neither_loses_nor_repeats_a_line(location: LogHarness, times: int) -> None:
    expected = []
    for number in range(times):
        location.taken(f"before {number}\nbegin")
        location.write(f" {number}\nwritten while nobody looked\n")
        location.restarted()
        location.collect()
        expected += [f"before {number}", f"begin {number}", "written while nobody looked"]
    assert location.lines() == expected


def test_another_file_is_read_from_its_begin(location: LogHarness) -> None:
    there = location.write("one\n")
    location.collect()
    there.rename(there.with_name("old+x+y"))
    location.taken("two\n")
    assert location.lines() == ["one", "two"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_was_emptied_is_read_from_its_begin(location: LogHarness, restart: bool) -> None:
    there = location.write("something long\n")
    location.collect()
    os.truncate(there, 0)
    if restart:
        location.restarted()
    location.taken("short\n")
    assert location.lines() == ["something long", "short"]


@pytest.mark.parametrize("again", ["aftertrunc\n", "other\n", "more\n", "a little bit longer than before\n"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_program_that_truncates_its_own_output_loses_nothing_of_what_follows(
    location: LogHarness, restart: bool, again: str
) -> None:
    there = location.write("first\n")
    location.collect()
    os.truncate(there, 0)
    location.write(again)
    if restart:
        location.restarted()
    location.collect()
    location.collect()
    assert location.lines() == ["first", again.strip()]


def test_the_same_line_written_over_and_over_is_seen_each_time(location: LogHarness) -> None:
    there = location.write("same\n")
    for _ in range(3):
        location.collect()
        os.truncate(there, 0)
        location.write("same\n")
    location.collect()
    location.taken("end\n")
    assert location.lines() == ["same"] * 4 + ["end"]


def test_a_file_that_only_has_the_number_of_the_old_one_is_read_from_its_begin(location: LogHarness) -> None:
    there = location.write("one\n")
    location.collect()
    os.truncate(there, 0)
    location.write("something else that is longer\n")
    location.restarted()
    location.collect()
    assert location.lines() == ["one", "something else that is longer"]


def test_a_large_file_is_emptied_if_parts_cannot_be_freed(tmp_path: Path) -> None:
    location = LogHarness(tmp_path, free=lambda file, begin, end: False)
    line = "x" * 999_999 + "\n"
    there = location.write(line * 40)
    location.collect()
    assert there.stat().st_size == 40_000_000
    location.taken(line * 40)
    assert there.stat().st_size == 0
    location.taken("a\n")
    location.restarted()
    location.taken("b\n")
    assert location.written() == "x" * 999_999 * 80 + "ab"


def test_a_container_that_ends_leaves_its_last_words(location: LogHarness) -> None:
    location.taken("one\ntwo")
    assert location.forget(place()).trouble == ""
    assert location.lines() == ["one", "two"]
    location.output(place()).unlink()
    location.forget(place())
    location.taken("a new one of the same name\n")
    assert location.lines() == ["one", "two", "a new one of the same name"]


def test_much_is_taken_in_turns_that_are_fair(location: LogHarness) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        location.write(b"x" * 99 + b"\n" + b"y" * 4999_899 + b"\n", place(name))
    assert location.collect().trouble == ""
    assert len([line for line in location.found() if line.text.startswith(b"x")]) == 6
    assert len(location.written()) == 6 * (99 + 4999_899)
    assert collector.OF_EACH < 5_000_000


def test_a_hundred_files_where_nothing_happens_cost_nearly_nothing(location: LogHarness) -> None:
    for number in range(100):
        location.write("x\n", place(f"w{number}"))
    location.collect()
    in_time(lambda: [location.collect() for _ in range(100)], 1.0)


def test_a_segment_is_followed_by_another_after_a_day_and_when_it_is_large(location: LogHarness) -> None:
    location.taken("one\n")
    location.wait(writer.LONGEST / 1000 - 1)
    location.taken("two\n")
    assert len(location.segments()) == 1
    location.wait(1)
    location.taken("three\n")
    assert len(location.segments()) == 2
    while len(location.segments()) == 2:
        location.taken(os.urandom(1 << 20).replace(b"\n", b"") + b"\n")
    assert writer.LARGEST <= location.segments()[1].stat().st_size <= writer.LARGEST + (1 << 20)
    location.taken("four\n")
    assert location.lines('{gvc="shop"} |~ "^[a-z]{3,5}$"') == ["one", "two", "three", "four"]


def test_collection_goes_on_after_segments_were_deleted(location: LogHarness) -> None:
    location.taken("one\n")
    (gone,) = location.segments()
    gone.unlink()
    location.taken("two\n")
    assert location.lines() == ["two"]
    location.restarted()
    location.taken("three\n")
    assert location.lines() == ["two", "three"]


def test_times_stand_still_while_the_clock_is_set_back_a_little(location: LogHarness) -> None:
    location.taken("one\n")
    location.clock.jump(-2)
    location.taken("two\n")
    assert [(line.ms, line.text) for line in location.found()] == [
        (int(START * 1000), b"one"),
        (int(START * 1000), b"two"),
    ]
    assert len(location.segments()) == 1


def test_a_clock_that_was_wrong_by_years_loses_nothing_and_keeps_nothing_back(location: LogHarness) -> None:
    location.clock.jump(10 * 365 * 86_400)
    location.taken("in the future\n")
    location.clock.jump(-10 * 365 * 86_400)
    location.taken("now\n")
    location.restarted()
    location.taken("later\n")
    assert sorted(location.lines()) == ["in the future", "later", "now"]
    assert location.found('{gvc="shop"} |= "now"')[0].ms == int(START * 1000)
    assert len(location.segments()) == 2
