"""The manual pages say what `--help` says, and the files of completion are what the commands print."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest

from docs.generate.completions import PLACES, make_completions
from docs.generate.man_pages import make_pages
from docs.generate.roff import Entry as Term
from docs.generate.roff import escape_text, mark_code, write_list
from reconciler.cli import cli, read_commands
from reconciler.platform_cli.command_line import all_rows
from tests.support.command_sandbox import here
from tests.support.programs import tool


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """File name → source of each page."""
    return make_pages()


def find_commands(words: str, command: click.Command) -> dict[str, click.Command]:
    """``command`` and all below it, by their words."""
    commands = {words: command}
    for name, below in command.commands.items() if isinstance(command, click.Group) else ():
        commands |= find_commands(f"{words} {name}", below)
    return commands


def test_every_command_has_a_page_with_its_help(pages: dict[str, str]) -> None:
    context = click.Context(cli, **cli.context_settings)
    absent: list[str] = []
    for name in read_commands():
        top = cli.get_command(context, name)
        assert top is not None
        page = " ".join(pages[f"reconciler-{name}.1"].split())
        for words, command in find_commands(name, top).items():
            own = click.Context(command, parent=context)
            options = [option for option in command.get_params(own) if isinstance(option, click.Option)]
            records = [record for option in options if (record := option.get_help_record(own))]
            usage = escape_text(" ".join(["reconciler", words, *command.collect_usage_pieces(own)]))
            first = mark_code(" ".join((command.help or "").split("\n\n")[0].split()))
            wanted = [usage, first, *(write_list([Term(*record)]).strip() for record in records)]
            absent += [f"{words}: {text}" for text in wanted if " ".join(text.split()) not in page]
    assert absent == []
    assert {f"reconciler-{name}.1" for name in read_commands()} < pages.keys()


def test_the_page_of_platform_has_every_command_of_it(pages: dict[str, str]) -> None:
    page = pages["platform.1"]
    words = [escape_text(" ".join([*row.words[:-1], "/".join((row.words[-1], *row.aliases))])) for row in all_rows()]
    assert [each for each in words if f"\\fB{each}" not in page] == []


def test_the_formatter_finds_no_fault_in_the_pages(pages: dict[str, str], tmp_path: Path) -> None:
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    groff = [tool("groff", "groff-base"), "-K", "utf8", "-man", "-T", "utf8", "-ww", "-z"]
    formatted = subprocess.run([*groff, *sorted(tmp_path.iterdir())], capture_output=True, text=True, check=False)
    assert (formatted.returncode, formatted.stderr) == (0, "")


def test_a_line_that_begins_as_an_instruction_is_shown_unchanged(tmp_path: Path) -> None:
    page, hostile = tmp_path / "page.1", mark_code("a `b-\\n` -- c")
    page.write_text(f".TH X 1\n.SH A\n{escape_text('.de x')}\n.br\n{hostile}\n")
    groff = [tool("groff", "groff-base"), "-man", "-T", "ascii", "-P-cbou", str(page)]
    shown = subprocess.run(groff, capture_output=True, text=True, check=True).stdout
    assert re.search(r"\.de x\n\s+a b-\\n -- c", shown)


def test_completion_is_what_the_command_prints(tmp_path: Path) -> None:
    scripts = make_completions()
    for shell, path in PLACES.items():
        printed = here("completion", shell, cwd=tmp_path).out
        assert scripts[path.format(name="reconciler")].strip() == printed.strip()
        assert f"_PLATFORM_COMPLETE={shell}_complete" in scripts[path.format(name="platform")]
