"""The pages for people who come from other tools: every command of ours on them exists, with its options."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

import click
import pytest

from docs.generate.pages import COMING_FROM, DOCS
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
FROM_TABLES = {command for row in ROWS for command in re.findall(r"`(reconciler .+?)`", row.ours)}
ON_PAGES = {
    name: set(re.findall(r"(?:`|^)(reconciler [^`\n]+)", (DOCS / name).read_text(), re.M)) for name in COMING_FROM
}
COMMANDS = sorted(FROM_TABLES.union(*ON_PAGES.values()))
SCREEN = 60
"""Lines of a page about one tool, at most."""


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


@pytest.mark.parametrize("name", sorted(COMING_FROM))
def test_a_page_about_a_tool_has_its_concepts_what_is_missing_and_a_way(name: str) -> None:
    text = (DOCS / name).read_text()
    assert len(text.splitlines()) <= SCREEN
    assert len(re.findall(r"^\| (?!---|In )", text, re.M)) >= 10
    assert re.search(r"^Not here: .+", text, re.M)
    assert re.search(r"^## Move (?:a|an|one) ", text, re.M)
    assert len(ON_PAGES[name]) > 1
