"""Every command has help, starts quickly, and reports wrong use plainly."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import reconciler.cli.commands
from reconciler import __version__
from reconciler.cli import GROUPS, cli, read_commands
from reconciler.cli.foreign_words import FOREIGN_WORDS
from reconciler.overviews.table import OVERVIEWS
from tests.support.command_sandbox import CommandSandbox
from tests.support.command_sandbox import here as run
from tests.support.pace import on_quiet_machine
from tests.support.records import cpu_seconds

WRITTEN = sorted(read_commands())


PARTS = [
    *(["secret", name] for name in ("encrypt", "edit", "rotate")),
    *(["settings", name] for name in ("init", "validate")),
    *(["notify", name] for name in ("show", "test")),
    *(["volume", name] for name in ("import", "delete-final-snapshot")),
]


@pytest.mark.parametrize(
    "words", [[], *([name] for name in WRITTEN), *PARTS], ids=lambda words: " ".join(words) or "(none)"
)
def test_help_has_an_example_and_fits_a_terminal(tmp_path: Path, words: list[str]) -> None:
    result = run(*words, "--help", cwd=tmp_path)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert re.search(rf"Example: (\w+=\w+ )?reconciler {' '.join(words)}", result.out)
    most = 24 if words else 11 + 2 * len(GROUPS) + len(read_commands())
    assert len(lines) <= most, "a line for each command, and what fits a terminal"
    assert max(map(len, lines)) <= 80
    assert (tmp_path / "settings.yaml").exists() is False, "help needs no settings"


@pytest.mark.parametrize(
    "words", ["hold", "patch", "completion", "command", "volume clone", "volume delete-final-snapshot", "get"]
)
def test_a_long_example_is_one_command_when_it_is_copied(tmp_path: Path, words: str) -> None:
    shown = run(*words.split(), "--help", cwd=tmp_path).out
    lines = shown.partition("Example: ")[2]
    joined = subprocess.run(
        ["sh", "-c", f"set -- {lines.split('>')[0]}\nprintf '%s|' \"$@\""], capture_output=True, text=True
    )
    expected = shlex.split(cli_example(words).split(">")[0])
    assert (joined.stderr, joined.stdout.removesuffix("|").split("|")) == ("", expected)
    assert "\n" not in "".join(expected)


def cli_example(words: str) -> str:
    """The example of a command, in one line."""
    command: click.Command | None = cli
    for word in words.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    return str(command.epilog).removeprefix("Example: ")


WITHOUT_SETTINGS = {
    *("completion", "convert", "diff", "down", "explain", "help", "import", "init", "rules", "secret", "settings"),
    *("notify", "uninstall", "up", "volume"),
}


@pytest.mark.parametrize("name", sorted({*WRITTEN} - WITHOUT_SETTINGS))
def test_every_command_that_needs_settings_takes_the_option(tmp_path: Path, name: str) -> None:
    assert "--settings FILE" in run(name, "--help", cwd=tmp_path).out


@pytest.mark.parametrize("word", ["import_", "__init__", "../commands/plan", "commands.plan", "plän", "a" * 300])
def test_only_a_name_in_the_list_is_a_command(word: str, tmp_path: Path) -> None:
    result = run(word, cwd=tmp_path)
    assert result.code == 2
    assert f"there is no command {word!r}" in result.err


def test_help_lists_every_command(tmp_path: Path) -> None:
    output = run("--help", cwd=tmp_path).out
    assert run("help", cwd=tmp_path).out == output
    assert all(f"\n  {name} " in output for name in read_commands())


def test_every_module_of_a_command_begins_with_its_line_in_the_help() -> None:
    paths = Path(reconciler.cli.commands.__file__).parent.glob("[!_]*.py")
    first = {path.stem.rstrip("_"): path.read_text().partition("\n")[0] for path in paths}
    assert {
        name: line for name, line in first.items() if not re.fullmatch(rf'"""`reconciler {name}`: .+\."""', line)
    } == {}
    assert {*first, *OVERVIEWS} == read_commands().keys()


def test_help_starts_in_a_tenth_of_a_second(tmp_path: Path) -> None:
    # One of several tries: this is about what is imported, not about what else the machine does.
    assert any(on_quiet_machine(cpu_seconds("--help", cwd=tmp_path)) < 0.1 for _ in range(20))


HEAVY = {"apscheduler", "httpx", "jsonschema", "referencing", "structlog", "watchfiles"}


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        ("--help", {"pygit2", "asyncio", "sqlite3", "msgspec", "yaml"}),
        ("run --help", {"pygit2", "asyncio", "sqlite3", "msgspec", "yaml"}),
        ("get", {"pygit2", "asyncio"}),
        ("describe workload/shop/api", {"pygit2", "asyncio"}),
        ("events", {"pygit2", "asyncio"}),
        ("""logs {gvc=~"shop"}""", {"pygit2", "asyncio", "sqlite3"}),
        ("validate", {"asyncio"}),
        ("plan", {"asyncio"}),
        ("diff main main", {"asyncio"}),
        ("apply", set()),
    ],
)
def test_a_command_imports_only_what_it_needs(tmp_path: Path, words: str, unwanted: set[str]) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    command = [sys.executable, "-X", "importtime", "-m", "reconciler.cli", *words.split()]
    environ = {**os.environ, "RECONCILER_SETTINGS": str(sandbox.settings)}
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env=environ)
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "click" in imported
    assert imported & (HEAVY | unwanted) == set()


def test_an_option_prints_the_version(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).out == f"reconciler, version {__version__}\n"


def test_a_mistyped_command_is_named_with_the_nearest(tmp_path: Path) -> None:
    result = run("gett", cwd=tmp_path)
    assert result.code == 2
    assert result.err.endswith("error: there is no command 'gett'; did you mean get?\n")


@pytest.mark.parametrize("words", [["gett"], ["get", "--nonsense"], ["describe"], ["describe", "a/b/c/d"]])
def test_a_wrong_command_line_exits_with_2(tmp_path: Path, words: list[str]) -> None:
    result = run(*words, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert "error: " in result.err


def test_settings_that_are_not_there_exit_with_2_and_one_line(tmp_path: Path) -> None:
    result = run("get", "--settings", "nowhere.yaml", cwd=tmp_path)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert "nowhere.yaml" in result.err
    assert len(result.err.splitlines()) == 1


def test_errors_are_red_on_a_terminal_unless_it_wants_no_colour(tmp_path: Path) -> None:
    script = f"{sys.executable} -m reconciler.cli get --settings nowhere.yaml"

    def on_a_terminal(environment: str) -> str:
        ran = subprocess.run(
            ["script", "--quiet", "--command", f"env {environment} {script}", "/dev/null"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return ran.stdout

    assert "\x1b[31merror: " in on_a_terminal("-u NO_COLOR")
    assert "\x1b[" not in on_a_terminal("NO_COLOR=1")


def test_help_of_a_command_has_two_spellings(tmp_path: Path) -> None:
    assert run("help", "volume", "import", cwd=tmp_path) == run("volume", "import", "--help", cwd=tmp_path)


@pytest.mark.parametrize("word", FOREIGN_WORDS)
def test_a_word_of_another_tool_leads_to_what_does_the_same(tmp_path: Path, word: str) -> None:
    meant = FOREIGN_WORDS[word]
    assert word not in read_commands()
    named = re.findall(r"reconciler ([a-z]+)", meant) or [meant] * (" " not in meant)
    assert set(named) <= read_commands().keys(), "what it names is a command"
    result = run(word, "KEY", cwd=tmp_path)
    assert result.code == 2
    assert result.err.endswith(f"; here it is `reconciler {meant}`\n" if " " not in meant else f"; {meant}\n")


@pytest.mark.parametrize(
    ("word", "hint"),
    [("gte", ""), ("desribe", "; did you mean describe?"), ("xyz", ""), ("valdate", "; did you mean validate?")],
)
def test_a_misspelled_command_is_named_with_the_nearest(tmp_path: Path, word: str, hint: str) -> None:
    assert run(word, cwd=tmp_path).err.endswith(f"there is no command {word!r}{hint}\n")


def test_settings_stand_before_or_after_the_command(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    after = run("get", "-o", "name", "--settings", str(sandbox.settings), cwd=tmp_path, RECONCILER_SETTINGS="none")
    assert after.code == 0
    for words in (["--settings", str(sandbox.settings)], [f"--settings={sandbox.settings}"]):
        assert run(*words, "get", "-o", "name", cwd=tmp_path, RECONCILER_SETTINGS="none") == after
    assert run("--settings", "none", "get", cwd=tmp_path).code == 2
    assert run("--settings", cwd=tmp_path).code == 2
    assert run("--settings", "none", "explain", "missing-field", cwd=tmp_path).code == 0, "it needs none"


def test_the_version_is_that_of_the_command_and_the_engines(tmp_path: Path) -> None:
    versions = run("version", "-o", "json", cwd=tmp_path).json
    assert (versions["client"], versions["daemon"]) == (__version__, None)
    assert {"host", "kubernetes", "recorded"} <= {*versions["engines"]}
    assert "daemon   not running" in run("version", cwd=tmp_path).out
