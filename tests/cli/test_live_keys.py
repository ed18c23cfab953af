"""Tables that are redrawn on a terminal: `q` ends them, Ctrl-Z pauses them, and the terminal is then as it was."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.terminal.folding import measure_text
from tests.cli.test_top import ON_HOST, replicas
from tests.support.command_sandbox import CommandSandbox
from tests.support.sandbox import eventually
from tests.support.terminal import Terminal, terminal

HIDE, SHOW = "\x1b[?25l\x1b[?7l", "\x1b[?25h\x1b[?7h"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A sandbox with resources, and replicas in every state."""
    from reconciler.engines.host.controllers.replica_store import ReplicaStore

    sandbox = CommandSandbox(tmp_path_factory.mktemp("keys"))
    sandbox.applied()
    sandbox.settings.write_text(ON_HOST)
    for location, each in replicas():
        ReplicaStore(sandbox.state / "host" / location / "replicas").save(each)
    return sandbox


def open_live(sandbox: CommandSandbox, command: str, width: int = 100) -> Terminal:
    # Tests may run under nohup, whose programs ignore SIGHUP, and so do those that they start.
    words = ["env", "--default-signal=HUP", sys.executable, "-m", "reconciler.cli", *command.split()]
    environ = {"TERM": "xterm", "NO_COLOR": "1", "RECONCILER_SETTINGS": str(sandbox.settings)}
    return Terminal(words, environ, width, controlling=True)


@pytest.fixture(params=["top", "get -w", "status -w"])
def live(sandbox: CommandSandbox, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    opened = open_live(sandbox, f"{request.param} --interval 60s")
    try:
        opened.until(lambda screen: screen.endswith("q ends it"), "the hint")
        yield opened
    finally:
        opened.close()


def is_restored(shown: Terminal) -> bool:
    """Whether the terminal echoes again, and the cursor is back."""
    return shown.echoes() and shown.written.rindex(SHOW) > shown.written.rindex(HIDE)


def test_q_ends_it_at_once_and_leaves_the_table(live: Terminal) -> None:
    assert not live.echoes()
    live.type(b"xq")
    screen = live.ended()
    assert live.process.returncode == 0
    assert "q ends it" not in screen
    assert len(screen.splitlines()) > 1
    assert is_restored(live)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_that_ends_it_restores_the_terminal(sandbox: CommandSandbox, number: signal.Signals) -> None:
    live = open_live(sandbox, "top --interval 60s")
    try:
        live.until(lambda screen: screen.endswith("q ends it"), "the hint")
        live.process.send_signal(number)
        live.ended()
        assert live.process.returncode == 128 + number
        assert is_restored(live)
    finally:
        live.close()


def test_ctrl_c_ends_it_with_130_and_a_restored_terminal(live: Terminal) -> None:
    live.type(b"\x03")
    live.ended()
    assert live.process.returncode == 130
    assert is_restored(live)
    assert "Traceback" not in live.written


FAILING = """
import sys
from reconciler.terminal.live_display import repeat_drawing

texts = iter(["a first table"])
repeat_drawing(sys.stdout, lambda: next(texts), 0.1)
"""


def test_an_error_while_it_shows_restores_the_terminal() -> None:
    with terminal([sys.executable, "-c", FAILING], {"TERM": "xterm"}, controlling=True) as live:
        screen = live.ended()
        assert live.process.returncode == 1
        assert screen.startswith("a first table\nTraceback")
        assert is_restored(live)


def test_ctrl_z_gives_the_terminal_back_and_fg_goes_on(sandbox: CommandSandbox, tmp_path: Path) -> None:
    """A shell with job control owns the terminal, as where people type."""
    script = f"{sys.executable} -m reconciler.cli top --interval 60s\n"
    environ = {"TERM": "xterm", "NO_COLOR": "1", "RECONCILER_SETTINGS": str(sandbox.settings), "PS1": "ready$ "}
    words = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    with terminal(words, environ, controlling=True) as shell:
        shell.until(lambda screen: "ready$" in screen, "the shell")
        shell.type(script.encode())
        shell.until(lambda screen: screen.endswith("q ends it"), "the table")
        shell.type(b"\x1a")
        shell.until(lambda screen: "Stopped" in screen, "the pause")
        assert is_restored(shell)
        before = len(shell.written)
        shell.type(b"fg\n")
        shell.until(lambda screen: screen.endswith("q ends it") and HIDE in shell.written[before:], "the table again")
        eventually(lambda: not shell.echoes(), "it reads key by key")
        shell.type(b"q")
        shell.until(lambda screen: screen.rstrip().endswith("ready$"), "the shell")
        eventually(lambda: is_restored(shell), "the terminal is as it was")
        shell.type(b"exit 0\n")
        shell.ended()


def test_without_a_keyboard_it_shows_no_hint_and_ctrl_c_ends_it(sandbox: CommandSandbox) -> None:
    words = ["sh", "-c", f"exec {sys.executable} -m reconciler.cli top --interval 60s < /dev/null"]
    environ = {"TERM": "xterm", "NO_COLOR": "1", "RECONCILER_SETTINGS": str(sandbox.settings)}
    with terminal(words, environ, controlling=True) as shown:
        shown.until(lambda screen: "web-a" in screen, "the table")
        assert "q ends it" not in shown.screen
        shown.interrupt()
        shown.ended()
        assert shown.process.returncode == 130


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_live_table_shows_each_port_and_number_whole(sandbox: CommandSandbox, width: int) -> None:
    live = open_live(sandbox, "top --interval 60s", width)
    try:
        live.resize(60, width)
        live.until(lambda screen: screen.endswith("q ends it"), "the table")
        live.type(b"q")
        screen = live.ended()
    finally:
        live.close()
    assert "20001->8080" in screen
    assert "20002->9000" in screen
    lines = screen.splitlines()
    assert [line for line in lines if measure_text(line) > width] == []
    piped = sandbox.run("top").out
    words = [re.sub(r"^\d+[smhd]\d*[smhd]?$", "AGE", word) for word in piped.split()]
    shown = [re.sub(r"^\d+[smhd]\d*[smhd]?$", "AGE", word) for word in screen.split()]
    assert shown == words, "nothing is cut, and nothing is left out"
