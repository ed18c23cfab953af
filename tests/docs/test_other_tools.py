"""The page for people who come from other tools: every command of ours in its tables exists, with its options."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

import click
import pytest

from docs.generate.pages import DOCS
from reconciler.cli import cli

TOOLS = ("kubectl", "flux", "argocd", "terraform", "kamal", "docker compose")
PAGE = (DOCS / "other-tools.md").read_text()


class Row(NamedTuple):
    """A row of a table: what the other tool is told, and what stands beside it."""

    tool: str
    theirs: str
    ours: str


ROWS = [
    Row(title, *cells)
    for title, table in re.findall(r"^## (.+)\n\n((?:\|.*\n)+)", PAGE, re.M)
    for cells in re.findall(r"^\| `(.+?)` \| (.+) \|$", table, re.M)
]
COMMANDS = sorted({command for row in ROWS for command in re.findall(r"`(reconciler .+?)`", row.ours)})


def test_every_tool_has_its_table() -> None:
    assert {row.tool for row in ROWS} == {*TOOLS}
    assert {row.theirs.startswith(f"{row.tool} ") for row in ROWS} == {True}
    assert all(sum(row.tool == tool for row in ROWS) > 9 for tool in TOOLS)
    assert len({row.theirs for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_ours_exists_with_its_options(line: str) -> None:
    _, name, *words = shlex.split(line)
    command = cli.get_command(click.Context(cli), name)
    if isinstance(command, click.Group):
        name, words = words[0], words[1:]
        command = command.get_command(click.Context(command), name)
    assert command is not None
    _, left, _ = command.make_parser(click.Context(command, info_name=name)).parse_args(list(words))
    assert left == [], "it has no place for these words"
