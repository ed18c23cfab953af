"""Output in the log form of containers: whole lines with their times, however it is collected."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.engines.host.logs import tail
from reconciler.engines.host.runtimes.protocol import OutputForm
from reconciler.engines.reading import LogSpan
from tests.engines.host.logs.kit import LogHarness, place
from tests.support.cases import cases
from tests.support.clock import START
from tests.support.examples import examples

PIECE = 8191
"""Bytes of a part of a line, as conmon cuts it."""


def location_in(path: Path) -> LogHarness:
    return LogHarness(path, form=OutputForm.CRI)


@pytest.fixture
def location(tmp_path: Path) -> LogHarness:
    return location_in(tmp_path)


def shown(location: LogHarness) -> list[str]:
    """The lines, each with its second and millisecond."""
    return [f"{line.ms // 1000 % 60:02}.{line.ms % 1000:03} {line.text.decode()}" for line in location.found()]


def written(line: bytes, at: float = START, stream: str = "stdout", size: int = PIECE) -> bytes:
    """A line as conmon writes it, with a line break if it is whole."""
    time = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    pieces = [line[begin : begin + size] for begin in range(0, len(line), size)] or [b""]
    words = [f"{time} {stream} P ".encode()] * (len(pieces) - 1) + [f"{time} {stream} F ".encode()]
    return b"".join(word + piece + b"\n" for word, piece in zip(words, pieces, strict=True))


@pytest.mark.parametrize("case", cases("host/cri.yaml"))
def test_lines(location: LogHarness, case: dict[str, Any]) -> None:
    for piece in case["written"]:
        location.taken(piece)
    assert shown(location) == case["lines"]


LINES = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))),
    max_size=12,
)


@given(LINES, st.lists(st.integers(0, 2000), max_size=12), st.lists(st.booleans(), min_size=13, max_size=13))
@settings(max_examples=examples(200))
def test_any_chunks_give_the_same_lines(lines: list[tuple[str, bytes]], cuts: list[int], restarts: list[bool]) -> None:
    raw = b"".join(written(line, START + at / 10, stream, size=9) for at, (stream, line) in enumerate(lines))
    begins = sorted({0, *(cut for cut in cuts if cut < len(raw))})
    with tempfile.TemporaryDirectory() as folder:
        location = location_in(Path(folder))
        for begin, end, restart in zip(begins, [*begins[1:], len(raw)], restarts, strict=False):
            location.taken(raw[begin:end])
            if restart:
                location.restarted()
        expected = [(int((START + at / 10) * 1000), line.removesuffix(b"\r")) for at, (_, line) in enumerate(lines)]
        assert [(line.ms, line.text) for line in location.found()] == expected


@pytest.mark.parametrize("length", [PIECE, PIECE + 1, 65_536, 65_537, 300_000, 700_000])
def test_a_long_line_is_joined_up_to_the_limit_of_lines(location: LogHarness, length: int) -> None:
    location.taken(written(b"before"))
    location.taken(written(b"x" * length))
    location.taken(written(b"after"))
    lines = location.lines()
    assert (lines[0], lines[-1]) == ("before", "after")
    parts = lines[1:-1]
    assert "".join(parts).replace("…", "") == "x" * length
    assert max(len(part.strip("…")) for part in parts) <= 65_536
    last = len(parts) - 1
    assert [part.startswith("…") for part in parts] == [at > 0 for at in range(len(parts))]
    assert [part.endswith("…") for part in parts] == [at < last for at in range(len(parts))]


def test_the_begin_of_a_line_does_not_wait_for_ever(location: LogHarness) -> None:
    location.taken(b"2026-11-22T14:05:03.1Z stdout P prompt> \n")
    assert location.lines() == []
    location.wait(tail.PATIENCE)
    location.collect()
    assert location.lines() == ["prompt> "]
    location.restarted()
    location.taken(b"2026-11-22T14:05:09.2Z stdout F yes\n")
    assert shown(location) == ["03.100 prompt> ", "09.200 …yes"]


def test_nothing_is_lost_or_repeated_by_restarts_and_truncation(location: LogHarness) -> None:
    location.taken(b"".join(written(b"first %d" % number) for number in range(10_000)))
    there = location.output(place())
    assert there.stat().st_blocks * 512 < there.stat().st_size
    location.restarted()
    location.taken(written(b"y" * (PIECE + 3)))
    location.restarted()
    location.taken(b"")
    assert location.lines()[10_000:] == ["y" * (PIECE + 3)]
    there.write_bytes(b"")
    location.taken(written(b"again"))
    assert location.lines()[10_001:] == ["again"]
    location.restarted()
    location.taken(written(b"and again"))
    assert location.lines()[10_000:] == ["y" * (PIECE + 3), "again", "and again"]


def test_lines_are_found_by_the_time_at_which_they_were_written(location: LogHarness) -> None:
    location.wait(7_200)
    location.taken(b"".join(written(b"%d" % number, START + number * 60) for number in range(60)))
    begin = int((START + 600) * 1000)
    found = location.found(span=LogSpan(begin, begin + 120_000))
    assert [line.text for line in found] == [b"10", b"11", b"12"]
    assert location.lines('{gvc="shop"} |= "59"') == ["59"]
