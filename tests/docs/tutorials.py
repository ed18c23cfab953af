"""The tutorials as scripts: their commands in order, and what each prints there and here."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from docs.generate.pages import DOCS

FOLDER = DOCS / "tutorials"
TUTORIALS = ("https", "first-workload", "secret")
"""Their names, the one first that each run of the tests tries."""
PODMAN = " podman"
"""After the language of a block that needs Podman and the image of the page."""
_BLOCK = re.compile(r"^```(sh|console)( podman)?\n(.*?)^```$", re.M | re.S)
_MARK, _SILENT = "@@ command", "@@ no output shown"
"""What the script prints before each command whose output is shown, and before other ones."""
_HOME = "/home/ada"
_VARIES = (
    (re.compile(r"(?:/var/lib/reconciler-up|\S+/\.local/state/reconciler)/"), "STATE/"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"reconciler\.localhost:\d+/ui/login/\S+"), "LOGIN"),
    (re.compile(r"\bpid \d+"), "PID"),
    (re.compile(r"\bssh-ed25519 \S+"), "RECIPIENT"),
    (re.compile(r"\bENC\[\S+\]"), "ENCRYPTED"),
    (re.compile(r"\b[0-9a-f]{7,40}\b"), "ID"),
    (re.compile(r" +"), " "),
)
"""What differs between two runs: places, times, addresses, ids, keys, and columns that are as wide as these."""
_WAITING = "waiting: "
"""Before the lines that commands write each ten seconds, on a busy machine."""


class Shown(NamedTuple):
    """A command, and the lines that it prints, normalised."""

    command: str
    printed: list[str]


class Tutorial(NamedTuple):
    """A page: the script that a reader types, and what it shows."""

    script: str
    shown: list[Shown]


def read_tutorial(name: str, *, podman: bool = False, replaced: dict[str, str] | None = None) -> Tutorial:
    """The tutorial ``name``, with the blocks that need Podman if that is there, and with ``replaced`` texts."""
    text = (FOLDER / f"{name}.md").read_text()
    for before, after in (replaced or {}).items():
        text = text.replace(before, after)
    script, shown = ["set -euo pipefail"], list[Shown]()
    for language, needs_podman, block in _BLOCK.findall(text):
        if needs_podman and not podman:
            continue
        if language == "sh":
            script.append(f"echo '{_SILENT}'\n{block}")
            continue
        for each in _read_console(block, _HOME):
            script.append(f"echo {_MARK!r}\n{{ {each.command}\n}} 2>&1 || true")
            shown.append(each)
    return Tutorial("\n".join([*script, f"echo {_SILENT!r}"]), shown)


def read_outputs(printed: str, home: Path) -> list[list[str]]:
    """What each shown command printed in a run of the script, normalised."""
    lines = printed.splitlines()
    marks = [number for number, line in enumerate(lines) if line in (_MARK, _SILENT)]
    return [_normalise(lines[begin + 1 : end], str(home)) for begin, end in pairwise(marks) if lines[begin] == _MARK]


def compare(tutorial: Tutorial, printed: str, home: Path) -> list[str]:
    """Each command that printed something else than the page says, with both; empty where all is as printed."""
    outputs = read_outputs(printed, home)
    differences = [
        "\n".join([f"$ {each.command}", *(f"- {line}" for line in each.printed), *(f"+ {line}" for line in got)])
        for each, got in zip(tutorial.shown, outputs, strict=False)
        if each.printed != got
    ]
    missing = len(tutorial.shown) - len(outputs)
    return [*differences, f"{missing} commands were not run"] if missing else differences


def _read_console(block: str, home: str) -> list[Shown]:
    """Every command of a console with what it prints."""
    parts = re.split(r"^\$ ", block, flags=re.M)
    assert not parts[0].strip(), f"a console begins with a command: {parts[0]}"
    return [Shown(lines[0], _normalise(lines[1:], home)) for lines in (part.splitlines() for part in parts[1:])]


def _normalise(lines: list[str], home: str) -> list[str]:
    """``lines`` without what differs between two runs, and without empty ones."""
    texts = []
    for line in lines:
        text = line.replace(f"{home}/.local", f"{_HOME}/.local").replace(home, "HOME")
        for pattern, name in _VARIES:
            text = pattern.sub(name, text)
        texts += [text.rstrip()] if text.strip() and not text.startswith(_WAITING) else []
    return texts
