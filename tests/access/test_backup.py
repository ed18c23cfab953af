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
from tests.support.api import ORG, ApiClient, ApiSite, api_site
from tests.support.clock import FakeClock

ACCOUNT = f"{ORG}/serviceaccount/ci"
FILES = {**SHOP, "more.yaml": "kind: agent\nname: edge\n---\nkind: auditctx\nname: trail\n"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ApiSite]:
    """A site with an agent and an audit context."""
    with api_site(tmp_path, FILES) as made:
        yield made


def send(site: ApiSite, method: str, path: str, body: Any = None) -> Any:
    """The body of the answer to a request of a superuser."""
    answer = site.client().request(method, path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()


def run(site: ApiSite, *words: str) -> str:
    """The output of a command that succeeds."""
    done = site.run(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def again(site: ApiSite) -> Api:
    """The API of another daemon on the state directory."""
    return Api(load_settings(site.settings_file), FakeClock(), lambda: True)


def test_what_was_issued_works_after_a_restore_on_a_new_host(site: ApiSite, tmp_path: Path) -> None:
    key = send(site, "POST", f"{ACCOUNT}/-key", {})["key"]
    token = send(site, "POST", f"{ORG}/agent/edge/-bootstrap")["registrationToken"]
    send(site, "POST", f"{ORG}/auditctx/trail/-record", {"action": "refund"})
    session = site.api.store.add_session(Caller("user/ann@example.com"), 3600.0)
    audit = site.client().get(f"{ORG}/-audit")["items"]
    backup = tmp_path / "copy.sqlite"
    assert "and the credentials and the audit log of the API" in run(site, "backup", str(backup))
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.glob("copy*")) == ["copy.sqlite"]

    shutil.rmtree(site.state)
    assert "the credentials of the API are back" in run(site, "restore", str(backup))
    assert stat.S_IMODE((site.state / FILE).stat().st_mode) == 0o600
    with closing(again(site)) as api:
        statuses = [
            ApiClient(api, None).request(method, path, json={}, headers={"Authorization": credential}).status_code
            for method, path, credential in (
                ("GET", "/whoami", key),
                ("PUT", f"{ORG}/agent/edge/-info", token),
                ("GET", "/whoami", session),
            )
        ]
        assert statuses == [200, 204, 401]
        found = api.store.audit()
        assert [each.hash for each in found][: len(audit)] == [each["hash"] for each in audit]
        assert list(api.store.broken_audit()) == []
        assert list(api.store.audit_records.find_broken("trail")) == []
        assert api.store.audit_records.has_any("trail")
        # An entry of the audit log has the next number.
        assert found[-1].number == len(found)
    assert run(site, "get")


def test_what_the_host_has_stays(site: ApiSite, tmp_path: Path) -> None:
    made = send(site, "POST", f"{ACCOUNT}/-key", {})
    backup = tmp_path / "copy.sqlite"
    run(site, "backup", str(backup))
    site.client().request("DELETE", f"{ACCOUNT}/-key/{made['name']}")
    site.api.close()
    assert "the API stay as they are" in run(site, "restore", str(backup), "--force")
    with closing(again(site)) as api:
        answer = ApiClient(api, None).request("GET", "/whoami", headers={"Authorization": made["key"]})
        assert answer.status_code == 401
        assert len(api.store.audit()) == 3


def test_a_backup_of_a_newer_version_is_refused(site: ApiSite, tmp_path: Path) -> None:
    newer = tmp_path / "newer.sqlite"
    run(site, "backup", str(newer))
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("UPDATE access_version SET version = ?", (len(MIGRATIONS) + 1,))
        connection.commit()
    site.api.close()
    shutil.rmtree(site.state)
    done = site.run("restore", str(newer))
    assert (done.returncode, "of a newer reconciler" in done.stderr) == (1, True)


def test_without_the_api_a_backup_has_records_alone(tmp_path: Path) -> None:
    with api_site(tmp_path, FILES) as site:
        site.api.close()
        for path in site.state.glob(f"{FILE}*"):
            path.unlink()
        backup = tmp_path / "copy.sqlite"
        assert "credentials" not in run(site, "backup", str(backup))
        assert "credentials" not in run(site, "restore", str(backup), "--force")
        assert not (site.state / FILE).exists()
