"""Hostile files through every command that reads files, and through the daemon's own way from a commit to a plan."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from math import ceil
from pathlib import Path

import pytest

from reconciler.documents.limits import LIMITS
from reconciler.source.file_filter import IGNORE_FILE
from tests.hostile.corpus import HUGE, MIB, WIDE
from tests.hostile.test_files import MEMORY, SECONDS, bounded_memory, sample
from tests.support.command_sandbox import SETTINGS, CommandResult, CommandSandbox
from tests.support.pace import in_time, slowness
from tests.support.pipeline import BASE, PipelineHarness
from tests.support.sops import CASES

BOMBS = (
    "an alias bomb below sops",
    "deep and wide below sops",
    "many wide documents with sops",
    "many tags",
    "many ignore comments",
    "a long schedule",
    "many variables from secrets",
    "encrypted JSON",
)
BRACKETS = b'sops: {mac: "", lastmodified: ""}\n---\n' + b"[" * 300_000 + b"]" * 300_000
SHORT = ("brackets", "encrypted JSON")
"""What every run of the tests takes through the commands; the slow tests take all."""


IDENTITY = CASES / "identity.txt"
OVERHEAD = 0.5
"""CPU seconds that a command takes for anything but the hostile file: a repository, settings and records."""

FORMATS = {
    "validate": ("text", "json", "github", "gitlab", "sarif"),
    "plan": ("text", "json", "markdown"),
    "diff": ("text", "json", "markdown"),
}


def raw(name: str) -> bytes:
    """A bomb, or the brackets that took gigabytes."""
    return WIDE[name]() if name in WIDE else HUGE[name]() if name in HUGE else BRACKETS


def ended_well(run: Callable[[], CommandResult], codes: set[int]) -> CommandResult:
    """The result of a command that must neither break nor take long."""
    with bounded_memory(MEMORY):
        result, _ = in_time(run, SECONDS + OVERHEAD)
    assert result.code in codes, result
    assert "Traceback" not in result.out + result.err
    assert "this is a bug" not in result.err
    return result  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", sample((*BOMBS, "brackets", "a hundred megabytes"), SHORT))
def test_a_hostile_commit_is_refused_by_every_command(name: str, tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.repo.git("config", "core.compression", "0")
    sandbox.commit({"shop/bad.yaml": raw(name)})
    for command, forms in FORMATS.items():
        words = ("main~1", "main") if command == "diff" else ()
        for form in forms:
            result = ended_well(lambda: sandbox.run(command, *words, "--format", form), {0, 1})  # noqa: B023
            assert len(result.out + result.err) < MIB
    ended_well(lambda: sandbox.run("apply"), {0, 1})
    ended_well(lambda: sandbox.run("get"), {0})


@pytest.mark.parametrize("name", sample((*BOMBS, "brackets", "a hundred megabytes"), SHORT))
def test_a_hostile_file_of_an_operator_is_refused_by_every_command(name: str, tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(raw(name))
    for command in ("import", "convert"):
        ended_well(lambda: sandbox.run(command, str(bad)), {0, 1, 2})  # noqa: B023
    recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
    ended_well(lambda: sandbox.run("secret", "encrypt", str(bad), "--recipient", recipient), {0, 1, 2})
    for command in ("edit", "rotate"):
        environ = {"SOPS_AGE_KEY_FILE": str(IDENTITY), "EDITOR": "true"}
        ended_well(lambda: sandbox.run("secret", command, str(bad), **environ), {0, 1, 2})  # noqa: B023
    (tmp_path / ".sops.yaml").write_bytes(raw(name))
    (tmp_path / "plain.yaml").write_text("kind: secret\nname: a\ntype: opaque\ndata: {payload: x}\n")
    ended_well(lambda: sandbox.run("secret", "encrypt", str(tmp_path / "plain.yaml")), {1, 2})
    for command in ("validate", "get", "plan", "doctor"):
        ended_well(lambda: sandbox.run(command, "--settings", str(bad)), {1, 2})  # noqa: B023


@pytest.mark.parametrize("size", [70_000, pytest.param(100 << 20, marks=pytest.mark.slow)])
def test_a_large_ignore_file_is_refused_from_its_size_alone(size: int, tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.repo.git("config", "core.compression", "0")
    sandbox.commit({IGNORE_FILE: b"a\n" * (size // 2)})
    assert "too large" in ended_well(lambda: sandbox.run("plan"), {1}).err
    (tmp_path / IGNORE_FILE).write_bytes(b"a\n" * (size // 2))
    (tmp_path / "a.yaml").write_text(SETTINGS)
    ended_well(lambda: sandbox.run("validate", str(tmp_path)), {1, 2})


@pytest.mark.parametrize("name", sample(("brackets", *BOMBS, *HUGE), SHORT))
def test_the_daemon_refuses_a_hostile_commit_in_time(name: str, tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE})
    harness.applied()
    harness.repo.git("config", "core.compression", "0")
    harness.commit({"shop/bad.yaml": raw(name)})
    harness.prepare()
    with bounded_memory(MEMORY):
        prepared, _ = in_time(lambda: harness.new_pipeline().plan_revision(keep_cache=False), SECONDS)
    assert prepared.plan is None or not prepared.plan.steps


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS["validate"])
@pytest.mark.parametrize("name", [*WIDE, *HUGE, "brackets"])
def test_a_fresh_process_holds_its_limits(name: str, form: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(raw(name))
    seconds = ceil(3 * slowness())
    limited = "import resource, sys; from reconciler.cli import main\n"
    limited += f"resource.setrlimit(resource.RLIMIT_AS, ({500 << 20},) * 2)\n"
    limited += f"resource.setrlimit(resource.RLIMIT_CPU, ({seconds},) * 2)\n"
    ended = subprocess.run(
        [sys.executable, "-c", f"{limited}main()", "validate", str(bad), "--format", form],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={"PATH": os.environ["PATH"], "RECONCILER_SETTINGS": "none"},
    )
    # A file that is too large to be read is none that can be checked.
    assert ended.returncode in (0, 1, 2), ended.stderr[-500:]
    assert not re.search(r"Traceback|this is a bug", ended.stderr + ended.stdout)


def test_a_file_beyond_the_limit_is_not_opened_for_reading(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    bad = tmp_path / "bad.yaml"
    with bad.open("wb") as file:
        file.truncate(1 << 40)
    assert bad.stat().st_size > LIMITS.file_bytes
    for words in (("validate",), ("import",), ("convert",), ("secret", "rotate"), ("get", "--settings")):
        ended_well(lambda: sandbox.run(*words, str(bad), SOPS_AGE_KEY_FILE=str(IDENTITY)), {1, 2})  # noqa: B023
