"""Rows of the records that no reconciler wrote: an error for people that names the table, and never a traceback."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.records.store import FILE
from tests.support.command_sandbox import CommandSandbox

KEY = "../../etc/passwd"

KEYS = {
    "applied": f"UPDATE applied SET key = '{KEY}' WHERE key = 'workload/shop/web' AND location = 'here'",
    "desired": f"UPDATE desired SET key = '{KEY}' WHERE key = 'workload/shop/web'",
    "referrers": f"INSERT INTO referrers VALUES ('gvc/shop', '{KEY}')",
    "pending": f"INSERT INTO pending (source, key) VALUES ('main', '{KEY}')",
    "failures": f"INSERT INTO failures VALUES ('{KEY}', 'here', 'Failed', 'x', 1, 1.0, 1.0, 1)",
    "journal": f"INSERT INTO journal VALUES (9, 1, '{KEY}', 'here', 'update', x'00')",
    "drifts": f"INSERT INTO drifts VALUES ('{KEY}', 'here', 'main', 1.0, x'00', 0)",
    "events": f"INSERT INTO events VALUES (999, 1.0, 1, '{KEY}', '', 'Normal', 'X', 'y')",
    "restarts": f"INSERT INTO restarts VALUES ('{KEY}', 1, 'ann', 1.0)",
    "suspensions": f"INSERT INTO suspensions VALUES ('{KEY}', 'x', 'ann', 1.0, NULL)",
    "traffic_holds": f"INSERT INTO traffic_holds VALUES ('{KEY}', 'x', 'ann', 1.0, 4e9)",
    "orphans": f"INSERT INTO orphans VALUES ('{KEY}', 'ann', 1.0)",
    "secret_data": f"UPDATE secret_data SET key = '{KEY}'",
}
VALUES = {
    "applied health": "UPDATE applied SET health = 'Nonsense'",
    "applied body": "UPDATE applied SET body = x'7b'",
    "applied state": "UPDATE applied SET state = x'7b'",
    "desired links": "UPDATE desired SET links = x'c1'",
    "runs counts": "UPDATE runs SET counts = x'7b'",
    "requests args": "INSERT INTO requests (kind, args, by, at) VALUES ('apply', x'7b', 'ann', 1.0)",
    "drifts packed": "INSERT INTO drifts VALUES ('workload/shop/web', 'here', 'main', 1.0, x'7b', 0)",
    "blobs": "UPDATE blobs SET parsed = x'c1'",
}
COMMANDS = [
    ["plan"],
    ["get"],
    ["get", "workload", "-o", "json"],
    ["describe", "workload/shop/web"],
    ["history"],
    ["events"],
    ["drift"],
    ["doctor"],
    ["suspend", "workload/shop/web"],
    ["apply"],
]


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A sandbox of which everything is applied, and the newest commit is not."""
    sandbox = CommandSandbox(tmp_path_factory.mktemp("desk"))
    sandbox.applied()
    shutil.copy(sandbox.state / FILE, sandbox.path / "sound")
    return sandbox


@pytest.mark.parametrize("row", [*KEYS, *VALUES])
def test_every_command_names_the_corrupt_table(applied: CommandSandbox, row: str) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(f"{applied.state / FILE}{ending}").unlink(missing_ok=True)
    shutil.copy(applied.path / "sound", applied.state / FILE)
    with closing(sqlite3.connect(applied.state / FILE)) as connection:
        connection.execute((KEYS | VALUES)[row])
        connection.commit()
    for words in COMMANDS:
        result = applied.run(*words)
        assert "this is a bug" not in result.out + result.err, (words, result)
        assert result.code in (0, 1), (words, result)
        if "no reconciler wrote" in result.err:
            assert "(table " in result.err
            assert "restore a backup" in result.err
