"""Ctrl-C at what each command waits for: it ends with 130, a terminal as before, and at most a sentence."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from pathlib import Path

import pytest

from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.sandbox import eventually
from tests.support.terminal import Terminal, terminal
from tests.support.up_sandbox import UpSandbox, open_sandbox

NEVER = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
SPEAKING = ["-c", "echo spoken; while :; do sleep 0.1; done"]
MORE = """\
kind: volumeset
name: data
spec: {initialCapacity: 10, performanceClass: general-purpose-ssd}
---
kind: workload
name: job
spec:
  type: cron
  containers: [{name: main, image: none, command: sleep, args: ["600"]}]
  job: {schedule: 0 0 29 2 *}
---
kind: workload
name: db
spec:
  type: stateful
  containers:
    - {name: main, image: none, command: sleep, args: ["600"], volumes: [{uri: platform://volumeset/data, path: /data}]}
"""
EDITOR = "echo editing; exec sleep 600"

WAITS: dict[str, tuple[str, str]] = {
    "apply --wait": ("available", "the daemon goes on with it"),
    "status --wait": ("available", ""),
    "status --watch": ("q ends it", ""),
    "get -w": ("q ends it", ""),
    "events -f": ("workload/shop/", ""),
    "logs workload/shop/speaking -f": ("spoken", ""),
    "command workload/shop/job runCronWorkload": ("", "it goes on; to see it: reconciler command workload/shop/job"),
    "command volumeset/shop/data deleteVolume volumeIndex=0": ("Go on?", ""),
    "edit workload/shop/speaking": ("editing", "nothing was changed"),
    "validate -": ("", ""),
}
"""Commands with what they show once they wait, and the sentence that they end with."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostSandbox]:
    """A daemon with a workload that is never ready, one that speaks, a cron workload and a volume."""
    files = {
        "shop/never.yaml": served("never", command="/bin/sh", args=SPEAKING, ports=None, readinessProbe=NEVER),
        "shop/speaking.yaml": served("speaking", command="/bin/sh", args=SPEAKING, ports=None, readinessProbe=None),
        "shop/more.yaml": MORE,
    }
    with host_sandbox(tmp_path_factory.mktemp("waits"), files) as sandbox, sandbox.daemon():
        for name in ("speaking", "db"):
            key = f"workload/shop/{name}@here"
            eventually(lambda key=key: sandbox.healthy(key), f"{key} runs")
        yield sandbox


def open_command(sandbox: HostSandbox, *words: str, **environ: str) -> Terminal:
    command = [sys.executable, "-m", "reconciler.cli", *words]
    return Terminal(command, {**sandbox.environ, "TERM": "xterm", **environ}, controlling=True)


def read_modes(shown: Terminal) -> tuple[int, ...]:
    """How the terminal treats keys and output, and whether it echoes."""
    return tuple(termios.tcgetattr(shown._master)[:4])


def check_interrupt(shown: Terminal, ready: Callable[[str], object], sentence: str) -> None:
    """Press Ctrl-C once the screen is ``ready``, and look at what is left."""
    before = read_modes(shown)
    shown.until(ready, "what it waits for")
    shown.interrupt()
    screen = shown.ended()
    assert shown.process.returncode == 130, screen
    assert "Traceback" not in shown.written
    assert shown.written.count("\x1b[?25l") == shown.written.count("\x1b[?25h"), "the cursor is back"
    assert read_modes(shown) == before
    # A table that is redrawn takes the keys itself, and stays; what is waited for is removed.
    words = screen.rpartition("^C")[2].split() if "^C" in screen or sentence else []
    assert words == [] if not sentence else sentence in " ".join(words), screen


@pytest.mark.parametrize("words", WAITS)
def test_an_interrupt_ends_a_wait_cleanly(sandbox: HostSandbox, tmp_path: Path, words: str) -> None:
    text, sentence = WAITS[words]
    (tmp_path / "editor").write_text(EDITOR)
    with chdir(tmp_path):
        shown = open_command(sandbox, *words.split(), EDITOR=f"sh {tmp_path}/editor", TMPDIR=str(tmp_path))
    try:
        if words.startswith("command workload"):
            eventually(lambda: "sleep 600" in " ".join(sandbox.programs().values()), "the execution runs")
        check_interrupt(shown, lambda screen: text in screen, sentence)
    finally:
        shown.close()
    assert [path.name for path in tmp_path.iterdir()] == ["editor"], "nothing is left behind"


def test_an_interrupt_in_a_container_is_for_its_program(sandbox: HostSandbox) -> None:
    program = ("sh", "-c", "echo begun; exec sleep 600")
    shown = open_command(sandbox, "exec", "workload/shop/speaking", "--", *program)
    try:
        before = read_modes(shown)
        shown.until(lambda screen: "begun" in screen, "the program runs")
        shown.type(b"\x03")
        shown.ended()
        assert (shown.process.returncode, read_modes(shown)) == (130, before), shown.screen
    finally:
        shown.close()


def list_programs(state: Path) -> list[str]:
    """The command lines of programs that have ``state`` in their environment."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(state) in (folder / "environ").read_bytes():
                lines.append((folder / "cmdline").read_text(errors="replace"))
    return [line for line in lines if line]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[UpSandbox]:
    with open_sandbox(tmp_path) as sandbox:
        yield sandbox


def open_up(project: UpSandbox, *words: str) -> Terminal:
    command = [sys.executable, "-m", "reconciler.cli", *words]
    with chdir(project.folder):
        return Terminal(command, {**project.environ, "TERM": "xterm"}, controlling=True)


@pytest.mark.parametrize(("answers", "question"), [(b"", "write an example into it"), (b"y\r", "Which example")])
def test_an_interrupt_at_a_question_of_up_leaves_nothing(project: UpSandbox, answers: bytes, question: str) -> None:
    shown = open_up(project, "up")
    try:
        if answers:
            shown.until(lambda screen: "write an example" in screen, "the first question")
            shown.type(answers)
        check_interrupt(shown, lambda screen: question in screen, "")
    finally:
        shown.close()
    assert list(project.folder.iterdir()) == []


STUBBORN = """\
kind: gvc
name: app
spec: {staticPlacement: {locationLinks: [//location/local]}}
---
kind: workload
name: slow
spec:
  type: standard
  containers: [{name: main, image: none, command: sh, args: [-c, "trap '' TERM; while :; do sleep 0.2; done"]}]
"""


def test_an_interrupt_of_down_shows_that_not_everything_has_ended(project: UpSandbox) -> None:
    (project.folder / "app.yaml").write_text(STUBBORN)
    assert project.run("up", "--yes", "--detach").returncode == 0
    shown = open_up(project, "down")
    try:
        eventually(lambda: not [line for line in list_programs(project.state) if "reconciler.cli\x00run" in line])
        check_interrupt(shown, lambda _: True, "not everything has ended; to go on: reconciler down")
    finally:
        shown.close()
    assert project.run("down").returncode == 0
    eventually(lambda: list_programs(project.state) == [], "the rest has ended, too")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["Following", "started", "api"])
def test_an_interrupt_while_up_begins_ends_all_of_it(project: UpSandbox, text: str) -> None:
    with (
        chdir(project.folder),
        terminal(
            [sys.executable, "-m", "reconciler.cli", "up", "--yes"],
            {**project.environ, "TERM": "xterm"},
            controlling=True,
        ) as shown,
    ):
        before = read_modes(shown)
        shown.until(lambda screen: text in screen, "its beginning")
        shown.type(b"\x03")
        screen = shown.ended()
        assert shown.process.returncode in (0, 130), screen
        assert (read_modes(shown), "Traceback" in shown.written) == (before, False), screen
    eventually(lambda: list_programs(project.state) == [], "no daemon, no API, no replica is left")
