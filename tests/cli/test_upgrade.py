"""Records of an older version, at the command line: an empty file, as a first start leaves it that is cut off."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.records.migrations import schema_versions
from reconciler.records.store import FILE
from tests.support.command_sandbox import CommandSandbox, workload

NEWEST = len(schema_versions())


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    sandbox = CommandSandbox(tmp_path)
    sandbox.commit({"shop/web.yaml": workload("web", "2")}, message="Serve the new page")
    sandbox.state.mkdir(mode=0o700)
    (sandbox.state / FILE).touch(mode=0o600)
    return sandbox


def schema_version(sandbox: CommandSandbox) -> int:
    """The version in the file."""
    with closing(sqlite3.connect(sandbox.state / FILE)) as records:
        return int(records.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("words", [["get"], ["plan"], ["approve", "10c7502c"], ["suspend", "main"]])
def test_reading_commands_migrate_nothing_and_name_the_one_that_does(sandbox: CommandSandbox, words: list[str]) -> None:
    result = sandbox.run(*words)
    assert (result.code, schema_version(sandbox)) == (1, 0)
    assert f"must first be brought to {NEWEST}: start the daemon or run 'reconciler apply' once" in result.err
    assert sandbox.applied()
    assert schema_version(sandbox) == NEWEST
