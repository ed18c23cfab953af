"""Lines of logs on the page: their level, and stack traces as one entry."""

from __future__ import annotations

import pytest

from reconciler.logql.log_entries import find_level, group_lines

PYTHON = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    read()
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
ValueError: b"""
JAVA = """ERROR o.a.Main - failed
java.lang.IllegalStateException: no
\tat o.a.Main.run(Main.java:3)
Caused by: java.io.IOException: closed
\t... 3 more"""


def make_lines(text: str, replica: str = "web-1") -> list[dict[str, str]]:
    """The lines of one replica."""
    return [{"line": line, "replica": replica} for line in text.split("\n")]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("ERROR: no disk", "error"),
        ('{"level":"warn","msg":"x"}', "warning"),
        ("ts=1 level=info msg=ok", "info"),
        ("2026-01-31 12:00:00 [debug] x", "debug"),
        ("2026-01-31T12:00:00Z FATAL x", "error"),
        ("GET /errors/none 200", ""),
        ("no error occurred", ""),
        ("the log level: none", ""),
        ("INFORMATION about nothing", "info"),
        ("x" * 10_000_00 + " ERROR", ""),
        ("", ""),
    ],
)
def test_a_line_has_the_level_that_it_names(text: str, level: str) -> None:
    assert find_level(text) == level


def test_a_traceback_is_one_entry() -> None:
    first, second = group_lines([*make_lines("INFO begin"), *make_lines(PYTHON.replace("\n\n", "\n"))])
    assert (first.level, first.trace) == ("info", [])
    assert second.level == "error"
    assert second.trace[-1]["line"] == "ValueError: b"


def test_a_line_after_a_traceback_is_an_entry_of_its_own() -> None:
    entries = group_lines(make_lines(PYTHON.partition("\n\n")[0] + "\nlistening\nKeyErrors are rare"))
    assert [entry.line["line"] for entry in entries][1:] == ["listening", "KeyErrors are rare"]
    assert entries[0].trace[-1]["line"] == "KeyError: 'a'"


def test_traces_of_java_are_folded_below_their_exception() -> None:
    entries = group_lines(make_lines(JAVA))
    assert [entry.line["line"].partition(" ")[0] for entry in entries] == ["ERROR", "java.lang.IllegalStateException:"]
    assert len(entries[1].trace) == 3


def test_lines_of_another_replica_do_not_end_a_trace() -> None:
    lines = make_lines(PYTHON.partition("\n\n")[0])
    lines[1:1] = make_lines("INFO fine", "web-2")
    entries = group_lines(lines)
    assert [len(entry.trace) for entry in entries] == [3, 0]
