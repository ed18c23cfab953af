"""Commands that meet a bug name its place, show the other sources, and print none of the exception's text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.buggy import MARK, SECRET, raising_rule
from tests.support.command_sandbox import GVC, SETTINGS, SHOP, CommandResult, CommandSandbox, here, workload
from tests.support.git import GitRepo

SOURCES = SETTINGS.replace("locations:", "  - {name: other, url: ./other, branch: main}\nlocations:")
BUGGY = workload("web", more=f"tags: {{test: {MARK}}}\n")


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[CommandSandbox]:
    """Two sources; the first one trips a bug."""
    GitRepo.create(tmp_path / "other", {"gvc.yaml": GVC.replace("name: shop", "name: other")}, bare=True)
    sandbox = CommandSandbox(tmp_path, SHOP | {"shop/web.yaml": BUGGY}, SOURCES)
    with raising_rule():
        yield sandbox


def is_of_a_bug(result: CommandResult) -> bool:
    """Whether the command ended as it does for a bug."""
    assert SECRET not in result.out + result.err
    assert "Traceback" not in result.err
    [line] = [each for each in result.err.splitlines() if each.startswith("error: ")]
    return result.code == 1 and "KeyError at reconciler/" in line and "please report it" in line


def test_a_bug_in_one_source_does_not_hide_the_plan_of_another(sandbox: CommandSandbox) -> None:
    result = sandbox.run("plan")
    assert is_of_a_bug(result)
    assert "gvc/other" in result.out


def test_a_bug_in_one_source_does_not_hide_the_findings_of_another(sandbox: CommandSandbox) -> None:
    sandbox.path.joinpath("other")
    result = sandbox.run("validate")
    assert is_of_a_bug(result)
    assert "1 document" in result.out


def test_a_run_without_a_daemon_goes_on_with_the_other_source(sandbox: CommandSandbox) -> None:
    result = sandbox.run("apply")
    assert (result.code, sandbox.recorded()) == (1, {"gvc/other"})
    assert "main: failed at main@sha1:" in result.out
    assert "KeyError at reconciler/" in result.out
    assert SECRET not in result.out + result.err


def test_a_bug_that_ends_a_command_is_one_line_for_people_and_the_calls(
    sandbox: CommandSandbox, tmp_path: Path
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "web.yaml").write_text(BUGGY)
    assert is_of_a_bug(here("validate", "m", cwd=tmp_path, RECONCILER_SETTINGS="none.yaml"))
    assert is_of_a_bug(sandbox.run("diff", "HEAD~0", "HEAD"))
