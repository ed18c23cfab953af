"""Refusals in the audit log: each has an entry, and a flood of them is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.access.refusals import MOST, MOST_OF_SOURCE, WINDOW, Refusals
from reconciler.access.store import AccessStore, AuditEntry
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.clock import FakeClock

FLOOD = 10_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AccessStore]:
    """A file of its own."""
    made = AccessStore.open(tmp_path, FakeClock(0.0))
    yield made
    made.close()


def refusal(number: int, outcome: int = 401) -> AuditEntry:
    """The refusal with ``number``, of a caller without a credential."""
    return AuditEntry(float(number), "", "", "192.0.2.1", "GET", f"/{number}", str(number), outcome)


def test_a_flood_of_one_source_becomes_a_count_and_hides_no_other_source(store: AccessStore) -> None:
    clock = FakeClock()
    refusals = Refusals(store.append_audit, clock.monotonic)
    for number in range(FLOOD):
        refusals.add(refusal(number, 401 + 28 * (number % 2)), "192.0.2.1")
    refusals.add(refusal(FLOOD), "user/ann@example.com")
    rows = store.audit(limit=FLOOD)
    assert len(rows) == MOST_OF_SOURCE + 1
    assert rows[-1].entry.target == f"/{FLOOD}"
    clock.suspend(WINDOW + 1)
    refusals.flush()
    counted = [row.entry for row in store.audit(after=rows[-1].number)]
    assert [(each.outcome, each.target) for each in counted] == [(401, f"/{FLOOD - 2}"), (429, f"/{FLOOD - 1}")]
    assert sum(each.count for each in counted) + MOST_OF_SOURCE == FLOOD
    assert list(store.broken_audit()) == []
    refusals.add(refusal(1), "192.0.2.1")
    assert [row.entry.count for row in store.audit(after=rows[-1].number + 2)] == [1]


def test_a_flood_of_many_sources_is_bounded_too(store: AccessStore) -> None:
    clock = FakeClock()
    refusals = Refusals(store.append_audit, clock.monotonic)
    for number in range(FLOOD):
        refusals.add(refusal(number), f"192.0.{number // 256}.{number % 256}")
    refusals.flush(now=True)
    rows = store.audit(limit=FLOOD)
    assert len(rows) <= 2 * MOST + 1
    assert sum(row.entry.count for row in rows) == FLOOD


def test_requests_without_a_credential_are_counted(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES) as sandbox:
        client = sandbox.client(None)
        for number in range(MOST_OF_SOURCE + 10):
            assert client.request("GET", f"{ORG}/workload/{number}").status_code == 401
        assert len(sandbox.client().get(f"{ORG}/-audit")["items"]) == MOST_OF_SOURCE
        sandbox.clock.suspend(WINDOW + 1)
        items = sandbox.client().get(f"{ORG}/-audit")["items"]
        assert (len(items), items[0]["count"], items[-1]["count"]) == (MOST_OF_SOURCE + 1, 1, 10)
        assert items[-1]["target"].endswith(f"/{MOST_OF_SOURCE + 9}")


def test_what_was_counted_is_appended_at_the_end_of_the_server(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES) as sandbox:
        for _ in range(MOST_OF_SOURCE + 3):
            sandbox.client(None).request("GET", f"{ORG}/workload")
    assert _newest(sandbox).count == 3


def _newest(sandbox: ApiSandbox) -> AuditEntry:
    store = AccessStore.open(sandbox.state, FakeClock(0.0))
    try:
        return store.audit()[-1].entry
    finally:
        store.close()
