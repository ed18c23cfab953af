"""One grammar: every command × what can be mistyped in it has the same exit codes, streams and hints.

What was typed wrong exits with 2, what is not there with 1; both print nothing on standard output, and name what is
near. The cases come from the commands themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click
import pytest

from docs.generate.man_pages import make_pages
from reconciler.cli import cli, read_commands
from reconciler.cli.foreign_words import FOREIGN_OPTIONS, FOREIGN_WORDS
from reconciler.cli.options import Duration
from reconciler.cli.output.forms import OutputType
from reconciler.cli.target_arguments import KindArgument, TargetArgument
from tests.project.tree import ROOT
from tests.support.command_sandbox import CommandSandbox


class Grammar(NamedTuple):
    """A command by its words, such as ``volume import``."""

    words: tuple[str, ...]
    command: click.Command

    def options(self) -> Iterator[click.Option]:
        """The options that people type."""
        return (param for param in self.command.params if isinstance(param, click.Option) and not param.hidden)

    def targets(self) -> list[click.Argument]:
        """The arguments that name a resource or source."""
        return [param for param in self.command.params if isinstance(param, TargetArgument | KindArgument)]


def walk_commands() -> Iterator[Grammar]:
    """Every command, and those of groups."""
    for name in read_commands():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield Grammar((name,), command)
        parts = command.commands if isinstance(command, click.Group) else {}
        yield from (Grammar((name, part), below) for part, below in parts.items())


COMMANDS = list(walk_commands())
NAMING = [grammar for grammar in COMMANDS if grammar.targets()]
FURTHER = {
    "exec": ["--", "true"],
    "hold": ["--for", "1s"],
    "patch": ["tags.team=web"],
    "rollback": ["--previous"],
    "tag": ["a=b"],
    "volume import": ["nightly"],
    "volume clone": ["nightly", "volumeset/shop/data"],
    "volume delete-final-snapshot": ["nightly"],
}
"""Command → what it needs besides its target."""
COMMON = {"--settings", "--help"}
"""Options of every command."""
VOLUMES = {"snapshots"}
"""Commands whose target is a volume set."""
ASKING_FIRST = {"render", "volume import", "volume clone", "volume delete-final-snapshot"}
"""Commands that look for a location or a snapshot before the target, which may be deleted."""
OWN_SETTINGS = {"up", "down"}
"""Commands that make settings themselves, and would ignore those of a file."""
OF_PROGRAMS = {"exec": 125}
"""Command → its exit code for a resource that is not there, which is none of the program that it runs."""


def name_case(grammar: Grammar) -> str:
    """The words of a command."""
    return " ".join(grammar.words)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A sandbox whose shop is applied."""
    sandbox = CommandSandbox(tmp_path_factory.mktemp("grammar"))
    sandbox.applied()
    return sandbox


def misspell(word: str) -> str:
    """``word`` without a letter in its middle."""
    middle = len(word) // 2
    return word[:middle] + word[middle + 1 :]


def refuse(sandbox: CommandSandbox, *words: str, code: int = 2) -> str:
    """The only line of the error of ``words``, which print nothing else."""
    result = sandbox.run(*words)
    assert (result.code, result.out) == (code, ""), (words, result)
    return next(line for line in result.err.splitlines() if line.lower().startswith("error: "))


@pytest.mark.parametrize("grammar", COMMANDS, ids=name_case)
def test_a_misspelled_option_is_named_with_the_right_one(sandbox: CommandSandbox, grammar: Grammar) -> None:
    names = {name for option in grammar.options() for name in (*option.opts, *option.secondary_opts)}
    for name in names:
        wrong = misspell(name)
        if name.startswith("--") and wrong not in names and wrong not in FOREIGN_OPTIONS:
            line = refuse(sandbox, *grammar.words, wrong)
            assert line == f"error: there is no option {wrong!r}; did you mean {name}?"


@pytest.mark.parametrize("grammar", COMMANDS, ids=name_case)
def test_an_option_without_its_value_or_with_a_wrong_one_is_wrong_use(
    sandbox: CommandSandbox, grammar: Grammar
) -> None:
    for option in grammar.options():
        if option.is_flag or option.count:
            continue
        assert "requires an argument" in refuse(sandbox, *grammar.words, option.opts[0])
        if isinstance(option.type, click.Choice | click.IntRange | Duration | OutputType):
            line = refuse(sandbox, *grammar.words, option.opts[0], "nonsense")
            assert "invalid value for" in line
            assert "nonsense" in line


@pytest.mark.parametrize("grammar", COMMANDS, ids=name_case)
def test_settings_stand_in_each_place(sandbox: CommandSandbox, grammar: Grammar) -> None:
    group, *below = grammar.words
    for option in (["--settings", "nowhere.yaml"], ["--settings=nowhere.yaml"]):
        places = [[*option, *grammar.words], [*grammar.words, *option], [group, *option, *below]]
        helps = [sandbox.run(*words, "--help") for words in places]
        if group in OWN_SETTINGS:
            lines = {refuse(sandbox, *words).partition("; ")[0] for words in places}
            assert lines == {f"error: `{group}` has settings of its own"}
        elif isinstance(grammar.command, click.Group):
            assert {(shown.code, shown.err) for shown in helps[:2]} == {(0, "")}
        else:
            assert {(shown.code, shown.err, shown.out) for shown in helps} == {(0, "", helps[0].out)}
        if any("--settings" in param.opts for param in grammar.options()) and group not in ("install", "uninstall"):
            refusals = [sandbox.run(*words) for words in places]
            assert {refused == refusals[0] for refused in refusals} == {True}, refusals
            assert refusals[0].code


@pytest.mark.parametrize("name", read_commands())
def test_a_misspelled_command_is_named_with_the_right_one(sandbox: CommandSandbox, name: str) -> None:
    wrong = misspell(name)
    if len(name) > 3 and wrong not in {*read_commands(), *FOREIGN_WORDS}:
        assert (
            refuse(sandbox, wrong, "workload/shop/web") == f"error: there is no command {wrong!r}; did you mean {name}?"
        )


@pytest.mark.parametrize("grammar", [one for one in COMMANDS if one.words[1:]], ids=name_case)
def test_a_misspelled_command_of_a_group_is_named_with_the_right_one(sandbox: CommandSandbox, grammar: Grammar) -> None:
    group, name = grammar.words
    wrong = misspell(name)
    assert refuse(sandbox, group, wrong) == f"error: there is no command {wrong!r} of `{group}`; did you mean {name}?"


@pytest.mark.parametrize("grammar", [one for one in NAMING if name_case(one) not in ASKING_FIRST], ids=name_case)
def test_a_name_that_is_not_there_is_named_with_the_nearest(sandbox: CommandSandbox, grammar: Grammar) -> None:
    name = name_case(grammar)
    kind, whole, near = ("volumeset", "data", "dtaa") if name in VOLUMES else ("workload", "web", "wbe")
    forms = [(f"{kind}/{near}",), (kind, near), (f"{kind}/shop/{near}",)]
    for form in forms:
        line = refuse(sandbox, *grammar.words, *form, *FURTHER.get(name, []), code=OF_PROGRAMS.get(name, 1))
        assert line.partition("did you mean ")[2].partition("?")[0].endswith(whole)


@pytest.mark.parametrize("grammar", NAMING, ids=name_case)
def test_a_kind_that_is_not_there_is_named_with_the_nearest(sandbox: CommandSandbox, grammar: Grammar) -> None:
    further = FURTHER.get(name_case(grammar), [])
    line = refuse(sandbox, *grammar.words, "worklaod/shop/web", *further)
    assert "there is no kind 'worklaod'; did you mean workload?" in line


@pytest.mark.parametrize("grammar", COMMANDS, ids=name_case)
def test_an_argument_that_is_missing_is_wrong_use(sandbox: CommandSandbox, grammar: Grammar) -> None:
    needed = [param for param in grammar.command.params if isinstance(param, click.Argument) and param.required]
    if needed and not isinstance(grammar.command, click.Group):
        assert "missing argument" in refuse(sandbox, *grammar.words)


def test_help_manual_page_and_reference_have_the_same_commands_and_options() -> None:
    reference = (ROOT / "docs/commands.md").read_text()
    manual = {name: text.replace("\\-", "-") for name, text in make_pages().items()}
    for grammar in COMMANDS:
        name = " ".join(grammar.words)
        context = click.Context(grammar.command, info_name=name, parent=click.Context(cli, info_name="reconciler"))
        shown, page = grammar.command.get_help(context), manual[f"reconciler-{grammar.words[0]}.1"]
        heading = f"\n## {name}\n"
        assert heading in reference, name
        section = reference.partition(heading)[2].partition("\n##")[0]
        for option in grammar.options():
            spelling = option.opts[-1]
            assert spelling in shown, name
            assert spelling in page, name
            # What every command has is described once.
            assert f"`{spelling}`" in section or spelling in COMMON, name
