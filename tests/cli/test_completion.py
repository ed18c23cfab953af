"""Shells complete commands, options, and the names of resources and sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_sandbox import CommandSandbox, here
from tests.support.programs import tool
from tests.support.terminal import terminal


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A sandbox whose shop is applied."""
    sandbox = CommandSandbox(tmp_path_factory.mktemp("completion"))
    sandbox.applied()
    return sandbox


def complete(sandbox: CommandSandbox, words: str, **environ: str) -> list[str]:
    """What bash offers for the last of ``words``."""
    variables = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_RECONCILER_COMPLETE": "bash_complete",
    }
    result = subprocess.run(
        [sys.executable, "-m", "reconciler.cli"],
        cwd=sandbox.path,
        env={**os.environ, "RECONCILER_SETTINGS": str(sandbox.settings), **variables, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    return [line.rpartition(",")[2] for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("reconciler desc", ["describe"]),
        ("reconciler describe workload/shop/", ["workload/shop/api", "workload/shop/db", "workload/shop/web"]),
        ("reconciler restart workload/shop/w", ["workload/shop/web"]),
        ("reconciler suspend m", ["mk8s/", "main"]),
        ("reconciler get volu", ["volumeset"]),
        ("reconciler describe --se", ["--settings"]),
        ("reconciler get sou", ["source"]),
        ("reconciler get --state un", ["unwell", "unhealthy", "unknown"]),
        ("reconciler logs --level w", ["warning"]),
        ("reconciler get -o js", ["json", "jsonpath="]),
        ("reconciler validate --format j", ["json", "jsonpath=", "junit"]),
        ("reconciler describe nothing/", []),
    ],
)
def test_words_are_completed(sandbox: CommandSandbox, words: str, offered: list[str]) -> None:
    assert complete(sandbox, words) == offered


def test_without_settings_nothing_is_offered_and_nothing_printed(sandbox: CommandSandbox, tmp_path: Path) -> None:
    assert complete(sandbox, "reconciler describe workload/", RECONCILER_SETTINGS=str(tmp_path / "none")) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(tmp_path: Path, shell: str) -> None:
    result = here("completion", shell, cwd=tmp_path)
    assert (result.code, "_RECONCILER_COMPLETE" in result.out) == (0, True)
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=result.out, text=True, check=True)


@pytest.mark.parametrize(
    ("shell", "options", "load"),
    [
        ("bash", ["--norc"], "source {}"),
        ("zsh", ["-f"], "autoload -U compinit && compinit -u -D && source {}"),
    ],
)
def test_a_shell_completes_a_live_name_with_the_tab_key(
    sandbox: CommandSandbox, tmp_path: Path, shell: str, options: list[str], load: str
) -> None:
    script = tmp_path / "script"
    script.write_text(here("completion", shell, cwd=tmp_path).out)
    with terminal(
        [tool(shell, shell), *options, "-i"], list_variables(sandbox, tmp_path), 200, controlling=True
    ) as shown:
        shown.type(f'{load.format(script)}; echo loa""ded\r'.encode())
        shown.until(lambda screen: "\nloaded" in screen, "the script is loaded")
        shown.type(b"reconciler restart workload/shop/w\t")
        shown.until(lambda screen: "restart workload/shop/web" in screen, "the name is whole")


def test_fish_completes_a_live_name(sandbox: CommandSandbox, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(here("completion", "fish", cwd=tmp_path).out)
    asked = f"source {script}; complete --do-complete 'reconciler restart workload/shop/w'"
    command = [tool("fish", "fish"), "--no-config", "--command", asked]
    environ = {**os.environ, **list_variables(sandbox, tmp_path)}
    assert subprocess.check_output(command, env=environ, text=True) == "workload/shop/web\n"


def list_variables(sandbox: CommandSandbox, home: Path) -> dict[str, str]:
    """The variables of a shell whose commands find the settings of ``sandbox``."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {"RECONCILER_SETTINGS": str(sandbox.settings), "ZDOTDIR": str(home)}
    return {**settings, "PATH": path, "TERM": "dumb", "PS1": "> "}
