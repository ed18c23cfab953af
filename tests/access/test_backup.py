"""Credentials and the audit log in a backup, and back from it."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.access.rules import Caller
from reconciler.access.store import FILE, MIGRATIONS
from reconciler.api.service import Api
from reconciler.settings import load_settings
from tests.api.conftest import FILES as SHOP
from tests.support.api import ORG, ApiClient, ApiSandbox, api_sandbox
from tests.support.clock import FakeClock

ACCOUNT = f"{ORG}/serviceaccount/ci"
FILES = {**SHOP, "more.yaml": "kind: agent\nname: edge\n---\nkind: auditctx\nname: trail\n"}


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox with an agent and an audit context."""
    with api_sandbox(tmp_path, FILES) as made:
        yield made


def send(sandbox: ApiSandbox, method: str, path: str, body: Any = None) -> Any:
    """The body of the answer to a request of a superuser."""
    answer = sandbox.client().request(method, path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()


def run(sandbox: ApiSandbox, *words: str) -> str:
    """The output of a command that succeeds."""
    done = sandbox.run(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def again(sandbox: ApiSandbox) -> Api:
    """The API of another daemon on the state directory."""
    return Api(load_settings(sandbox.settings_file), FakeClock(), lambda: True)


def test_what_was_issued_works_after_a_restore_on_a_new_host(sandbox: ApiSandbox, tmp_path: Path) -> None:
    key = send(sandbox, "POST", f"{ACCOUNT}/-key", {})["key"]
    token = send(sandbox, "POST", f"{ORG}/agent/edge/-bootstrap")["registrationToken"]
    send(sandbox, "POST", f"{ORG}/auditctx/trail/-record", {"action": "refund"})
    session = sandbox.api.store.add_session(Caller("user/ann@example.com"), 3600.0)
    audit = sandbox.client().get(f"{ORG}/-audit")["items"]
    backup = tmp_path / "copy.sqlite"
    assert "and the credentials and the audit log of the API" in run(sandbox, "backup", str(backup))
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.sqlite"]

    shutil.rmtree(sandbox.state)
    assert "the credentials of the API are back" in run(sandbox, "restore", str(backup))
    assert stat.S_IMODE((sandbox.state / FILE).stat().st_mode) == 0o600
    with closing(again(sandbox)) as api:
        statuses = [
            ApiClient(api, None).request(method, path, json={}, headers={"Authorization": credential}).status_code
            for method, path, credential in (
                ("GET", "/whoami", key),
                ("PUT", f"{ORG}/agent/edge/-info", token),
                ("GET", "/whoami", session),
            )
        ]
        assert statuses == [200, 204, 401]
        entries = api.store.audit()
        assert [each.hash for each in entries][: len(audit)] == [value["hash"] for value in audit]
        assert list(api.store.broken_audit()) == []
        assert list(api.store.audit_records.find_broken("trail")) == []
        assert api.store.audit_records.has_any("trail")
        # An entry of the audit log has the next number.
        assert entries[-1].number == len(entries)
    assert run(sandbox, "get")


def test_what_the_host_has_stays(sandbox: ApiSandbox, tmp_path: Path) -> None:
    key = send(sandbox, "POST", f"{ACCOUNT}/-key", {})
    backup = tmp_path / "copy.sqlite"
    run(sandbox, "backup", str(backup))
    sandbox.client().request("DELETE", f"{ACCOUNT}/-key/{key['name']}")
    sandbox.api.close()
    assert "the API stay as they are" in run(sandbox, "restore", str(backup), "--force")
    with closing(again(sandbox)) as api:
        answer = ApiClient(api, None).request("GET", "/whoami", headers={"Authorization": key["key"]})
        assert answer.status_code == 401
        assert len(api.store.audit()) == 3


def test_a_backup_of_a_newer_version_is_refused(sandbox: ApiSandbox, tmp_path: Path) -> None:
    newer = tmp_path / "newer.sqlite"
    run(sandbox, "backup", str(newer))
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("UPDATE access_version SET version = ?", (len(MIGRATIONS) + 1,))
        connection.commit()
    sandbox.api.close()
    shutil.rmtree(sandbox.state)
    done = sandbox.run("restore", str(newer))
    assert (done.returncode, "of a newer reconciler" in done.stderr) == (1, True)


def test_without_the_api_a_backup_has_records_alone(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES) as sandbox:
        sandbox.api.close()
        for path in sandbox.state.glob(f"{FILE}*"):
            path.unlink()
        backup = tmp_path / "copy.sqlite"
        assert "credentials" not in run(sandbox, "backup", str(backup))
        assert "credentials" not in run(sandbox, "restore", str(backup), "--force")
        assert not (sandbox.state / FILE).exists()
