"""Audit contexts: who reads and writes their records, and that those stay."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reconciler.access.store import FILE
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox

TRAIL, EMPTY = f"{ORG}/auditctx/trail", f"{ORG}/auditctx/empty"
ACCOUNTS = {"writer": "writeAudit", "reader": "readAudit", "viewer": "view", "owner": "manage"}
CONTEXTS = "kind: auditctx\nname: trail\n---\nkind: auditctx\nname: empty\n" + "".join(
    f"---\nkind: serviceaccount\nname: {name}\n---\nkind: policy\nname: {name}\ntargetKind: auditctx\n"
    f"target: all\nbindings: [{{permissions: [{permission}], principalLinks: [//serviceaccount/{name}]}}]\n"
    for name, permission in ACCOUNTS.items()
)
RECORD = {"action": "refund", "target": "order/7", "outcome": "done", "details": {"amount": 12.5}}


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox with two audit contexts, and an account with each permission on them."""
    with api_sandbox(tmp_path, {**FILES, "contexts.yaml": CONTEXTS}) as made:
        yield made


def send(sandbox: ApiSandbox, account: str, method: str, path: str, body: Any = None) -> httpx2.Response:
    """The response to a request of a service account."""
    key = sandbox.api.store.add_key(account, "", "test", None)[1]
    return sandbox.client(None).request(method, path, json=body, headers={"Authorization": key})


def test_a_record_has_who_states_it_and_is_chained(sandbox: ApiSandbox) -> None:
    made = [send(sandbox, "writer", "POST", f"{TRAIL}/-record", RECORD).json() for _ in range(3)]
    records = send(sandbox, "reader", "GET", f"{TRAIL}/-record").json()["items"]
    assert records == made
    first = records[0]
    assert {name: first[name] for name in RECORD} == RECORD
    assert (first["number"], first["principal"], first["at"]) == (1, "serviceaccount/writer", "2026-01-01T00:00:00Z")
    assert first["credential"].startswith("key ")
    assert send(sandbox, "reader", "GET", f"{TRAIL}/-record?after=1&limit=1").json()["items"] == records[1:2]
    assert send(sandbox, "reader", "GET", f"{EMPTY}/-record").json()["items"] == []
    assert send(sandbox, "owner", "POST", f"{EMPTY}/-record", RECORD).json()["number"] == 1

    assert list(sandbox.api.store.audit_records.find_broken("trail")) == []
    with closing(sqlite3.connect(sandbox.state / FILE)) as file:
        file.execute("DELETE FROM audit_records WHERE context = 'trail' AND number = 2")
        file.commit()
    assert list(sandbox.api.store.audit_records.find_broken("trail")) == [3]


@pytest.mark.parametrize(
    ("account", "writes", "reads"),
    [("writer", 201, 403), ("reader", 403, 200), ("viewer", 403, 403), ("owner", 201, 200), ("ci", 403, 403)],
)
def test_the_permissions_of_a_context_guard_its_records(
    sandbox: ApiSandbox, account: str, writes: int, reads: int
) -> None:
    for name, missing in (("trail", False), ("none", True)):
        path = f"{ORG}/auditctx/{name}/-record"
        for method, status in (("POST", writes), ("GET", reads)):
            expected = 404 if missing and status < 400 else status
            assert send(sandbox, account, method, path, RECORD).status_code == expected, (method, path)


@pytest.mark.parametrize(
    "body",
    [{}, {"action": ""}, {"action": 7}, {"action": "a", "who": "me"}, {"action": "a", "details": {"a": "b" * 16_384}}],
)
def test_a_wrong_record_is_refused(sandbox: ApiSandbox, body: Any) -> None:
    assert send(sandbox, "writer", "POST", f"{TRAIL}/-record", body).status_code == 400
    assert sandbox.client().get(f"{TRAIL}/-record")["items"] == []


def test_only_the_server_writes_its_audit_log(sandbox: ApiSandbox) -> None:
    answer = sandbox.client().request("POST", f"{ORG}/auditctx/platform/-record", json=RECORD)
    assert (answer.status_code, "GET /org/acme/-audit" in answer.json()["message"]) == (400, True)
    answer = sandbox.client().request("DELETE", f"{ORG}/auditctx/platform")
    assert (answer.status_code, "is built in" in answer.json()["message"]) == (400, True)


def test_a_context_with_records_is_not_deleted(sandbox: ApiSandbox) -> None:
    send(sandbox, "writer", "POST", f"{TRAIL}/-record", RECORD)
    assert send(sandbox, "writer", "DELETE", EMPTY).status_code == 403
    answer = send(sandbox, "owner", "DELETE", TRAIL)
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "auditctx/trail has records, which are never deleted",
    )
    assert send(sandbox, "owner", "DELETE", EMPTY).status_code == 202


def test_a_commit_without_a_context_deletes_it_only_if_it_has_no_records(sandbox: ApiSandbox) -> None:
    send(sandbox, "writer", "POST", f"{TRAIL}/-record", RECORD)
    contexts = "kind: auditctx\nname: trail\n---\nkind: auditctx\nname: empty\n---\n"
    sandbox.repo.commit({"contexts.yaml": CONTEXTS.replace(contexts, "")})
    done = sandbox.run("apply")
    assert done.returncode == 0, done.stdout + done.stderr
    assert send(sandbox, "owner", "GET", EMPTY).status_code == 404
    [ready] = send(sandbox, "owner", "GET", TRAIL).json()["status"]["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", True, "Retained")
    assert "not deleted: it has records, which are never deleted" in ready["message"]
    assert len(send(sandbox, "owner", "GET", f"{TRAIL}/-record").json()["items"]) == 1
    with closing(sqlite3.connect(sandbox.state / FILE)) as file:
        file.execute("PRAGMA user_version = 99")
    sandbox.repo.commit({"contexts.yaml": CONTEXTS})
    assert sandbox.run("apply").returncode == 0
    sandbox.repo.commit({"contexts.yaml": CONTEXTS.replace(contexts, "")})
    assert sandbox.run("apply").returncode == 0
    conditions = sandbox.client().get(EMPTY)["status"]["conditions"]
    assert "whether it has records is not known" in conditions[0]["message"]
