"""No line that people see contains a part of a secret, however its file is written or broken."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.documents.redaction import lines_of, visible_lines
from tests.support.cases import cases

CANARY = "canary"


@pytest.mark.parametrize("case", cases("masking/lines.yaml"))
def test_a_file_shows_the_lines_that_its_case_names(case: dict[str, Any]) -> None:
    raw: str = case["file"]
    shown = visible_lines(raw.encode())
    lines = lines_of(raw.encode())
    assert len(shown) == len(lines)
    wanted = lines if case["shows"] == "everything" else case["shows"]
    assert [line for line in shown if line] == [line for line in wanted if line]
    assert not any(CANARY in (line or "") for line in shown)


@pytest.mark.parametrize("line_break", ["\r\n", "\r", "\x85", "\u2028"])
def test_lines_are_counted_as_the_parser_counts_them(line_break: str) -> None:
    raw = line_break.join(["\ufeffkind: secret", "name: db", "data:", f"  password: {CANARY}", ""]).encode()
    assert visible_lines(raw) == ["kind: secret", "name: db", None, None, None]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_other_encodings_show_nothing_of_a_secret(encoding: str) -> None:
    raw = f"kind: secret\nname: café\ndata: {{password: {CANARY}}}\n".encode(encoding)
    assert not any(CANARY in (line or "").replace("\0", "") for line in visible_lines(raw))


def test_a_large_file_takes_no_time() -> None:
    raw = b"kind: secret\nname: x\ndata: {" + b'"a": "b", ' * 100_000 + b"\n" + b"description: " + b"x" * 1_000_000
    assert visible_lines(raw)[2:] == [None, None]
