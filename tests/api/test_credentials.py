"""Credentials: the first login, keys of service accounts, sessions; delays for guesses; and the audit log."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.access.store import FILE
from reconciler.api.authentication import BOOTSTRAP_FILE
from reconciler.api.rate_limits import FREE_FAILURES, MOST_LONG_OF_CALLER
from reconciler.api.routes import audit
from tests.api.conftest import FILES
from tests.support.api import ORG, READER_PEER, ApiSandbox, api_sandbox

ACCOUNT = f"{ORG}/serviceaccount/ci"
WEB = f"{ORG}/gvc/shop/workload/web"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox of its own, since credentials are written."""
    with api_sandbox(tmp_path, FILES) as made:
        yield made


def bearer(text: str) -> dict[str, Any]:
    """The arguments of a request with the credential ``text``."""
    return {"headers": {"Authorization": f"Bearer {text}"}}


def status(sandbox: ApiSandbox, credential: str, path: str = WEB, method: str = "GET") -> int:
    """The status of a request over TCP."""
    return sandbox.client(None).request(method, path, **bearer(credential)).status_code


def new_key(sandbox: ApiSandbox, **body: str) -> dict[str, Any]:
    """A new key of the service account."""
    answer = sandbox.client().request("POST", f"{ACCOUNT}/-key", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_key_permits_what_policies_grant_until_it_is_revoked(sandbox: ApiSandbox) -> None:
    created = new_key(sandbox, description="pipeline")
    key = created["key"]
    assert key.startswith("rk_")
    assert status(sandbox, key) == 200
    assert status(sandbox, key, f"{ORG}/gvc/shop/workload/api") == 403
    listed = sandbox.client().get(f"{ACCOUNT}/-key")["items"]
    assert [(each["name"], each["description"], each["createdBy"]) for each in listed] == [
        (created["name"], "pipeline", "user/root")
    ]
    assert listed[0]["lastUsed"] is not None
    assert status(sandbox, key[:-1] + ("a" if key[-1] != "a" else "b")) == 401
    assert sandbox.client().request("DELETE", f"{ACCOUNT}/-key/{created['name']}").status_code == 204
    assert status(sandbox, key) == 401


def test_a_key_expires(sandbox: ApiSandbox) -> None:
    key = new_key(sandbox, expires="2026-01-01T00:01:00Z")["key"]
    assert status(sandbox, key) == 200
    sandbox.clock.jump(61.0)
    assert status(sandbox, key) == 401


def test_keys_are_for_those_who_may_add_them(sandbox: ApiSandbox) -> None:
    assert sandbox.client(READER_PEER).request("POST", f"{ACCOUNT}/-key", json={}).status_code == 403
    answer = sandbox.client().request("POST", f"{ORG}/serviceaccount/none/-key", json={})
    assert (answer.status_code, answer.json()["message"]) == (404, "there is no serviceaccount/none")


def test_no_secret_is_in_any_file(sandbox: ApiSandbox) -> None:
    key = new_key(sandbox)["key"]
    status(sandbox, key)
    file = sandbox.state / BOOTSTRAP_FILE
    session = sandbox.client(None).request("POST", "/login/bootstrap", json={"token": file.read_text().strip()})
    contents = {path: path.read_bytes() for path in sandbox.state.rglob("*") if path.is_file() and path != file}
    assert sandbox.state / "access.sqlite-wal" in contents, "what was just written is in the log of the database"
    for secret in (key.partition(".")[2], session.json()["token"].removeprefix("rs_")):
        assert len(secret) > 30
        assert [path for path, content in contents.items() if secret.encode() in content] == []


def test_the_bootstrap_token_works_once(sandbox: ApiSandbox) -> None:
    file = sandbox.state / BOOTSTRAP_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    answer = sandbox.client(None).request("POST", "/login/bootstrap", json={"token": token})
    session = answer.json()["token"]
    assert sandbox.client(None).request("GET", "/whoami", **bearer(session)).json() == {
        "principal": "user/bootstrap",
        "groups": ["group/superusers"],
        "org": "acme",
    }
    assert sandbox.client(None).request("POST", "/login/bootstrap", json={"token": token}).status_code == 401
    assert status(sandbox, session, "/login", "DELETE") == 204
    assert status(sandbox, session) == 401


def test_a_session_ends_by_itself(sandbox: ApiSandbox) -> None:
    token = (sandbox.state / BOOTSTRAP_FILE).read_text().strip()
    session = sandbox.client(None).request("POST", "/login/bootstrap", json={"token": token}).json()["token"]
    sandbox.clock.jump(3601.0)
    assert status(sandbox, session) == 401


def test_guesses_wait_longer_and_longer(sandbox: ApiSandbox) -> None:
    assert [status(sandbox, "rk_000000000000.guess") for _ in range(FREE_FAILURES)] == [401] * FREE_FAILURES
    refused = sandbox.client(None).request("GET", WEB, **bearer("rk_000000000000.guess"))
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    sandbox.clock.suspend(1.0)
    assert [status(sandbox, "rk_000000000000.guess") for _ in range(2)] == [401, 429]
    key = new_key(sandbox)["key"]
    assert status(sandbox, key) == 200, "a valid key is never refused because of others"
    assert status(sandbox, "rk_000000000000.guess") == 401


def test_a_flood_of_wrong_credentials_keeps_no_valid_one_out(sandbox: ApiSandbox) -> None:
    key, client = new_key(sandbox)["key"], sandbox.client(None)
    token = (sandbox.state / BOOTSTRAP_FILE).read_text().strip()
    for _ in range(20):
        assert status(sandbox, "rk_000000000000.guess") in (401, 429)
        assert client.request("POST", "/login/bootstrap", json={"token": "guess"}).status_code in (401, 429)
    assert status(sandbox, "rk_000000000000.guess") == 429
    assert client.request("POST", "/login/bootstrap", json={"token": token}).status_code == 201
    for _ in range(20):
        status(sandbox, "rk_000000000000.guess")
        assert status(sandbox, key) == 200


def test_guesses_at_one_key_count_from_all_addresses(sandbox: ApiSandbox) -> None:
    created = new_key(sandbox)

    def guess(number: int) -> int:
        client = sandbox.client(None, f"192.0.2.{number}")
        return client.request("GET", WEB, **bearer(f"rk_{created['name']}.guess")).status_code

    assert [guess(number) for number in range(FREE_FAILURES + 1)] == [401] * FREE_FAILURES + [429]
    assert status(sandbox, created["key"]) == 200
    assert guess(100) == 401


def test_the_audit_log_has_changes_and_refusals(sandbox: ApiSandbox) -> None:
    created = new_key(sandbox)
    sandbox.client().get(WEB)
    status(sandbox, "rk_000000000000.guess")
    status(sandbox, created["key"], f"{ORG}/secret/db")
    entries = sandbox.client().get(f"{ORG}/-audit")["items"]
    assert [(each["principal"], each["action"], each["target"], each["outcome"]) for each in entries] == [
        ("user/root", "POST", f"{ACCOUNT}/-key", 201),
        ("", "GET", WEB, 401),
        ("serviceaccount/ci", "GET", f"{ORG}/secret/db", 403),
    ]
    assert entries[2]["credential"] == f"key {created['name']}"
    assert sandbox.client().get(f"{ORG}/-audit?after=2")["items"] == entries[2:]
    assert created["key"] not in str(entries)
    answer = sandbox.client(READER_PEER).request("GET", f"{ORG}/-audit")
    assert answer.status_code == 403


def test_the_audit_log_is_exported_as_lines(sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_BATCH", 2)
    for _ in range(5):
        new_key(sandbox)
    as_lines = {"Accept": "application/x-ndjson"}
    listed = sandbox.client().get(f"{ORG}/-audit")["items"]
    for after in (0, 2, 5):
        answer = sandbox.client().request("GET", f"{ORG}/-audit?after={after}", headers=as_lines)
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert [json.loads(line) for line in answer.text.splitlines()] == listed[after:]
    refused = sandbox.client(READER_PEER).request("GET", f"{ORG}/-audit", headers=as_lines)
    assert refused.status_code == 403
    with ExitStack() as reading:
        for _ in range(MOST_LONG_OF_CALLER):
            reading.enter_context(sandbox.api.streams.admit("user/root"))
        assert sandbox.client().request("GET", f"{ORG}/-audit", headers=as_lines).status_code == 429


def test_a_changed_entry_breaks_the_chain(sandbox: ApiSandbox) -> None:
    for _ in range(3):
        new_key(sandbox)
    assert list(sandbox.api.store.broken_audit()) == []
    with closing(sqlite3.connect(sandbox.state / FILE)) as file:
        file.execute("UPDATE audit SET entry = replace(entry, 'root', 'toor') WHERE number = 2")
        file.commit()
    assert list(sandbox.api.store.broken_audit()) == [2]
    with closing(sqlite3.connect(sandbox.state / FILE)) as file:
        file.execute("DELETE FROM audit WHERE number = 2")
        file.commit()
    assert list(sandbox.api.store.broken_audit()) == [3]


def test_pages_show_nothing_of_hidden_resources(sandbox: ApiSandbox) -> None:
    key = new_key(sandbox)["key"]
    client = sandbox.client(None)
    for path in (f"{ORG}/workload?limit=1", f"{ORG}/gvc/shop/workload", f"{ORG}/workload?limit=500"):
        answer = client.request("GET", path, **bearer(key)).json()
        assert [value["name"] for value in answer["items"]] == ["web"]
        assert [link["rel"] for link in answer["links"]] == ["self"]
    for path in (f"{ORG}/secret", f"{ORG}/group", f"{ORG}/policy", f"{ORG}/gvc"):
        assert client.request("GET", path, **bearer(key)).json()["items"] == []
    # A resource that exists and one that does not are the same to this caller.
    answers = [client.request("GET", f"{ORG}/secret/{name}", **bearer(key)) for name in ("db", "none")]
    assert [answer.status_code for answer in answers] == [403, 403]
