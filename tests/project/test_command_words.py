"""Commands that `reconciler` and `platform` both have come from one table: same lines, options and examples."""

from __future__ import annotations

import click
import pytest

from reconciler.cli import cli, read_commands
from reconciler.command_words import SHARED_COMMANDS, SharedCommand
from reconciler.platform_cli.command_line import RowCommand, all_rows, make_program
from reconciler.platform_cli.table.examples import example_of

ROWS = {row.words[0]: row for row in all_rows() if len(row.words) == 1}
NOT_SHARED = {"apply", "convert", "diff", "logs", "secret", "status"}
"""What has the same name in both, and is about something else: files here, resources of the API there."""


def read_help(command: click.Command) -> dict[str, str]:
    """Long spelling of each option → its help, without a default."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {name: (option.help or "").partition(";")[0].rstrip(".") for option in options for name in option.opts}


@pytest.mark.parametrize("shared", SHARED_COMMANDS.values(), ids=SHARED_COMMANDS)
def test_both_programs_have_the_lines_options_and_examples_of_the_table(shared: SharedCommand) -> None:
    context = click.Context(cli)
    ours = cli.get_command(context, shared.name)
    row = ROWS[shared.name]
    theirs = RowCommand(shared.name, row)
    assert ours is not None
    assert read_commands()[shared.name] == theirs.get_short_help_str(200) == shared.line
    assert ours.epilog == f"Example: {shared.call('reconciler')}"
    assert example_of(row) == shared.call("platform")
    for option in shared.options:
        for spelling in option.spellings:
            texts = {read_help(ours)[spelling], read_help(theirs)[spelling]}
            assert texts == {option.help.partition(";")[0].rstrip(".")}, spelling


def test_every_command_of_both_is_in_the_table() -> None:
    assert read_commands().keys() & ROWS.keys() - SHARED_COMMANDS.keys() == NOT_SHARED & ROWS.keys()


@pytest.mark.parametrize("words", ["", "notify", "secret", "settings", "volume"])
def test_no_line_in_a_list_of_commands_is_cut(words: str) -> None:
    command: click.Command | None = cli
    context = click.Context(cli, info_name="reconciler", terminal_width=80, help_option_names=["-h", "--help"])
    if words:
        command = cli.get_command(context, words)
    assert command is not None
    listing = command.get_help(click.Context(command, context, info_name=words or "reconciler", terminal_width=80))
    assert [line for line in listing.splitlines() if line.endswith("...") and "[ARGS]" not in line] == []


def test_the_list_of_platform_is_in_groups_of_one_line_each() -> None:
    program = make_program()
    own = click.Context(program, info_name="platform", terminal_width=80, help_option_names=["-h", "--help"])
    shown = program.get_help(own)
    titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        *("Options:", "Begin:", "Manifests:", "Look:", "Operate:", "Kinds and more:"),
        "Not available here; each says what to do instead:",
    ]
    listed = shown.partition("Begin:\n")[2].partition("Not available")[0].split("\n")
    assert [line for line in listed if line.startswith("   ") or len(line) > 80] == []
    words = {line.split()[0].rstrip(",") for line in listed if line.startswith("  ")}
    lacking = {"cp", "helm", "mk8s", "port-forward", "task"}
    assert words | lacking == {row.words[0] for row in all_rows()}
