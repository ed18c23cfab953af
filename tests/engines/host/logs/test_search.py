"""A search gives the newest lines of all streams in the order of time, and reads no more than it must."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.engines.host.logs.blocks import Block, all_in, make_block, pack_block, unpack_block
from reconciler.engines.host.logs.search import Search
from reconciler.engines.reading import LogSelection, LogSpan, select_lines
from reconciler.logql.parser import parse_log_query
from tests.engines.host.logs.kit import EVERYTHING, LogHarness, newest, place, texts
from tests.support.clock import START
from tests.support.examples import examples

AT = int(START * 1000)


@pytest.fixture
def location(tmp_path: Path) -> LogHarness:
    """Ten seconds of two workloads that write in turn."""
    location = LogHarness(tmp_path)
    for number in range(10):
        location.taken(f"{number} first\n{number} second\n", place("web" if number % 2 else "api"))
        location.wait(1)
    return location


def test_streams_are_merged_by_time(location: LogHarness) -> None:
    assert location.lines() == [f"{number} {word}" for number in range(10) for word in ("first", "second")]
    assert location.lines('{workload="web"}')[0] == "1 first"


@pytest.mark.parametrize(("limit", "first"), [(1, "9 second"), (3, "8 second"), (19, "0 second"), (20, "0 first")])
def test_the_limit_takes_the_newest(location: LogHarness, limit: int, first: str) -> None:
    found = location.lines(limit=limit)
    assert len(found) == limit
    assert (found[0], found[-1]) == (first, "9 second")


def test_the_limit_counts_wanted_lines(location: LogHarness) -> None:
    assert location.lines('{gvc="shop"} |= "first" != "9"', limit=2) == ["7 first", "8 first"]


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        (LogSpan(since=AT + 8000), [8, 9]),
        (LogSpan(since=AT + 8001), [9]),
        (LogSpan(until=AT + 1000), [0, 1]),
        (LogSpan(until=AT + 999), [0]),
        (LogSpan(AT + 3000, AT + 4500), [3, 4]),
        (LogSpan(since=AT + 60_000), []),
        (LogSpan(until=AT - 1), []),
    ],
)
def test_a_span_of_time_has_both_its_ends(location: LogHarness, span: LogSpan, seconds: list[int]) -> None:
    found = location.found('{gvc="shop"} |= "first"', span=span)
    assert texts(found) == [f"{second} first" for second in seconds]


def test_a_search_reads_only_the_end_of_long_logs(location: LogHarness) -> None:
    for number in range(300):
        location.taken(f"{number} " + "x" * 300 + "\n")
        location.wait(3600)
    assert len(location.segments()) > 10
    read: list[Block] = []

    def counted(block: Block, stream: Mapping[str, str]) -> list[bytes]:
        assert stream["workload"] == "web"
        read.append(block)
        return block.lines()

    search = Search({"here": location.root}, LogSelection(lambda labels: True, counted))
    assert [line.text.split()[0] for line in newest(search, 3)] == [b"297", b"298", b"299"]
    assert len(read) <= 4


def test_lines_are_chosen_by_labels_in_them_and_of_their_stream(location: LogHarness) -> None:
    location.taken('{"level": "error", "took": "2s"}\n{"level": "info"}\nplain\n')
    location.taken('{"level": "error", "took": "2s"}\n', place("api"))
    search = location.search('{gvc="shop"} | json | level="error" | took > 1s | workload="web"')
    assert texts(newest(search, 10)) == ['{"level": "error", "took": "2s"}']
    location.taken('{"level": "error", "took": "1s"}\n{"level": "error", "took": "1m"}\n')
    assert texts(search.more()) == ['{"level": "error", "took": "1m"}']


def test_one_of_several_texts_may_be_in_any_block(location: LogHarness) -> None:
    location.taken("the first\n")
    location.wait(3600)
    location.taken("a second\n")
    assert texts(newest(location.search('{workload="web"} |= "first" or "a second"'), 10))[-2:] == [
        "the first",
        "a second",
    ]


def test_more_gives_what_came_since_and_nothing_twice(location: LogHarness) -> None:
    search = location.search('{workload=~"web|new"}')
    location.taken("before it was asked\n")
    assert texts(newest(search, 1)) == ["9 second"]
    assert texts(search.more()) == ["before it was asked"]
    assert search.more() == []
    location.taken("of another workload\n", place("api"))
    location.taken("of a new one\n", place("new"))
    location.wait(2 * 86_400)
    location.taken("in a new segment\n")
    assert len(location.segments()) == 2
    assert texts(search.more()) == ["of a new one", "in a new segment"]
    assert search.more() == []


def test_more_waits_for_what_is_half_written_and_misses_nothing_that_went(location: LogHarness) -> None:
    search = location.search('{workload="web"}')
    location.taken("late\n")
    (segment,) = location.segments()
    content = segment.read_bytes()
    segment.write_bytes(content[:-3])
    assert search.more() == []
    segment.write_bytes(content)
    assert texts(search.more()) == ["late"]
    segment.unlink()
    assert search.more() == []
    location.taken("after all was thrown away\n")
    assert texts(search.more()) == ["after all was thrown away"]


def test_a_stream_that_begins_anew_while_it_is_followed_is_seen(location: LogHarness) -> None:
    location.wait(2 * 86_400)
    location.taken("in the second segment\n")
    search = location.search('{workload="web"}')
    shutil.rmtree(location.root / "shop" / "web")
    location.output(place()).unlink()
    location.restarted()
    location.taken("in the first segment\n")
    assert [path.stem.partition("-")[2] for path in location.segments()] == ["1"]
    assert texts(search.more()) == ["in the first segment"]


def test_lines_of_locations_are_merged_and_carry_their_location(location: LogHarness) -> None:
    shutil.copytree(location.root, location.state / "host" / "there" / "logs")
    assert len(location.lines()) == 40
    assert location.lines(limit=4) == ["9 first", "9 second"] * 2
    assert {line.stream.location for line in location.found(limit=4)} == {"here", "there"}
    assert len(location.lines('{location="there"}')) == 20


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    search = Search(
        {"here": tmp_path / "nowhere"},
        LogSelection(lambda labels: True, partial(select_lines, parse_log_query(EVERYTHING))),
    )
    assert newest(search, 10) == []
    assert search.more() == []


def test_other_files_among_the_logs_are_ignored(location: LogHarness) -> None:
    (location.root / "README").write_text("hello")
    (location.root / "shop" / "web" / "web-1" / "main" / "notes.txt").write_text("hello")
    (location.root / "shop" / "empty" / "x" / "y").mkdir(parents=True)
    assert len(location.lines()) == 20


blocks = st.builds(
    make_block,
    st.integers(0, 2**50),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**63),
    st.binary(max_size=500),
    st.booleans(),
)


@given(st.lists(blocks, max_size=5), st.binary(max_size=20))
def test_blocks_are_found_again_between_other_bytes(made: list[Block], between: bytes) -> None:
    content = b"".join(pack_block(each) + between for each in made)
    assert [found for found, _ in all_in(content)] == made


@given(st.binary(max_size=200))
def test_whatever_is_read_is_a_block_or_none(content: bytes) -> None:
    assert unpack_block(content) is None
    assert list(all_in(b"RLB1" + content)) == []


@settings(max_examples=examples(200))
@given(st.lists(st.text(alphabet="ab\r", max_size=5)), st.booleans())
def test_lines_of_a_block_are_those_that_were_written(lines: list[str], compressed: bool) -> None:
    text = "".join(f"{line}\n" for line in lines).encode() * (100 if compressed else 1)
    found = make_block(0, 0, 0, text).lines()
    assert found == [line.removesuffix("\r").encode() for line in lines] * (100 if compressed else 1)
