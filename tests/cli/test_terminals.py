"""What commands print on real terminals: no line is longer than one, colours only where they are wanted."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.terminal.folding import fold_text, measure_text
from tests.support import processes
from tests.support.command_sandbox import CommandSandbox, workload
from tests.support.sandbox import eventually

READING = (
    *("get", "get sources", "describe web", "describe source/main", "status", "history", "plan", "events"),
    *("diff main~2 main~1", "drift", "snapshots", "top", "logs workload/shop/web", "doctor", "validate ../checked"),
    *("command workload/shop/web", "explain readiness-missing", "version", "get wbe", "plan --revision none"),
)
"""Commands that read; their text is folded."""
WHOLE = ("get -o wide", "get -o json", "describe web -o yaml")
"""Commands whose lines stay whole, however long they are."""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A sandbox with a long subject, a delete that waits for an approval, and a folder with findings."""
    sandbox = CommandSandbox(tmp_path_factory.mktemp("terminals"))
    sandbox.applied()
    sandbox.commit({"shop/web.yaml": workload("web", "2")}, message="Say " + "what customers wish " * 6)
    sandbox.applied()
    sandbox.commit({"shop/db.yaml": None})
    assert sandbox.run("apply").code == 1
    checked = sandbox.path / "checked"
    checked.mkdir()
    (checked / "web.yaml").write_text(workload("web", more=f"description: {'many words ' * 20}\nimagee: {'x' * 150}\n"))
    return sandbox


FOLLOWING = (
    *("status --watch", "get -w", "get -o json -w", "describe web -w", "history -w", "snapshots -w", "events -f"),
    *("logs workload/shop/web -f", "validate --watch ../checked"),
)
"""Commands that end with Ctrl-C."""


def show(sandbox: CommandSandbox, command: str, width: int, **environ: str) -> str:
    """What ``reconciler COMMAND`` prints on a terminal of ``width`` columns, its sequences included."""
    with begin(sandbox, command, width, **environ) as (running, terminal):
        shown = read_all(terminal)
        running.wait(60)
    return shown


@contextmanager
def begin(
    sandbox: CommandSandbox, command: str, width: int, **environ: str
) -> Iterator[tuple[processes.Forked | subprocess.Popen[bytes], int]]:
    """``reconciler COMMAND`` on a terminal of ``width`` columns, and the descriptor of its other side."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environ = {"TERM": "xterm", "COLUMNS": "", "NO_COLOR": "", **environ}
    environ["RECONCILER_SETTINGS"] = str(sandbox.settings)
    with os.fdopen(master, "rb", buffering=0) as terminal, os.fdopen(slave, "wb") as other:
        words = ["-m", "reconciler.cli", *command.split()]
        running = processes.start(words, other, other, cwd=sandbox.path / "manifests", environ=environ)
        other.close()
        yield running, terminal.fileno()


def read_all(terminal: int) -> str:
    """What is written until no program has the terminal."""
    shown = b""
    while part := _read_part(terminal):
        shown += part
    return shown.decode().replace("\r\n", "\n")


def _read_part(descriptor: int) -> bytes:
    """What can be read of a terminal; nothing once no program has it."""
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


def list_long(text: str, width: int) -> list[str]:
    """The lines of ``text`` that are longer than ``width`` and have more than one word; a bar replaces what it drew."""
    lines = [ESCAPE.sub("", line.rpartition("\r")[2]) for line in text.splitlines()]
    return [line for line in lines if measure_text(line) > width and len(line.split()) > 1]


@pytest.mark.parametrize("command", READING)
def test_no_line_is_longer_than_the_terminal(sandbox: CommandSandbox, command: str) -> None:
    for width in (60, 80):
        shown = show(sandbox, command, width)
        assert shown != ""
        assert list_long(shown, width) == []
        assert "\\u" not in shown, "no sequence of ours is escaped"


@pytest.mark.parametrize("command", WHOLE)
def test_what_is_copied_stays_whole(sandbox: CommandSandbox, command: str) -> None:
    shown = show(sandbox, command, 60)
    piped = sandbox.run(*command.split()).out
    assert [len(line) for line in ESCAPE.sub("", shown).splitlines()] == [len(line) for line in piped.splitlines()]


def test_colours_are_for_terminals_that_show_them(sandbox: CommandSandbox) -> None:
    assert "\x1b[" in show(sandbox, "history", 200)
    plain = show(sandbox, "history", 200, NO_COLOR="1")
    assert "\x1b" not in plain
    assert show(sandbox, "history", 200, TERM="dumb") == plain
    for command in READING:
        result = sandbox.run(*command.split(), cwd=sandbox.path / "manifests")
        assert "\x1b" not in result.out + result.err, command


@pytest.mark.parametrize("command", FOLLOWING)
def test_an_interrupt_ends_what_follows_at_once(sandbox: CommandSandbox, command: str) -> None:
    with begin(sandbox, command, 80) as (running, terminal):
        # ``logs`` of nothing prints nothing; the others are interrupted once they have shown something.
        first = b"" if command.startswith("logs") else os.read(terminal, 65_536)
        interrupt(running)
        rest = read_all(terminal)
        assert running.wait(60) == 130
    assert "Traceback" not in rest
    shown = first.decode().replace("\r\n", "\n") + rest
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h"), "the cursor is back"


def interrupt(running: processes.Forked | subprocess.Popen[bytes]) -> None:
    """Send SIGINT once the command waits: Python misses a signal just before it sleeps."""
    state = Path(f"/proc/{running.pid}/stat")
    eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "S", "it waits")
    running.send_signal(signal.SIGINT)


def test_a_wide_terminal_shows_lines_as_a_file_has_them(sandbox: CommandSandbox) -> None:
    for command in ("plan", "status"):
        shown = ESCAPE.sub("", show(sandbox, command, 300))
        result = sandbox.run(*command.split())
        assert shown == result.out + result.err


def test_a_variable_sets_the_width(sandbox: CommandSandbox) -> None:
    assert list_long(show(sandbox, "get", 200, COLUMNS="60"), 60) == []


@pytest.mark.parametrize(
    ("line", "columns", "folded"),
    [
        ("short", 10, "short"),
        ("one two three", 9, "one two\n    three"),
        ("one two three", 0, "one two three"),
        ("NAME  a cell with many words that goes on", 32, "NAME  a cell with many words\n      that goes on"),
        ("NAME  READY  a narrow cell, below its line", 30, "NAME  READY  a narrow cell,\n      below its line"),
        ("a-word-that-is-longer-than-all and more", 20, "a-word-that-is-longer-than-all\n    and more"),
        ("\x1b[31mone two\x1b[0m three", 9, "\x1b[31mone two\x1b[0m\n    three"),
        ("会議 会議 会議", 9, "会議 会議\n    会議"),
        ("    12 | image: a very long line", 20, "    12 | image: a very long line"),
    ],
)
def test_a_line_is_folded_between_words(line: str, columns: int, folded: str) -> None:
    assert fold_text(f"{line}\n{line}", columns) == f"{folded}\n{folded}"
