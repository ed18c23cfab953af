"""Many rows are deleted a few at a time, while another thread writes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from reconciler.errors import RecordsError
from reconciler.records import slices
from reconciler.records.store import FILE, Records
from tests.status.samples import entry


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records.open(tmp_path / FILE)


def test_a_sweep_in_another_thread_leaves_what_is_used(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 7)
    shop = entry("gvc/shop", "shop.yaml")
    records.desired.replace("main", [], [shop])
    used = [(shop.blob, b"1"), (f"{shop.blob}#without-secrets", b"1")]
    records.documents.put_many([*used, *((f"{number:040x}", b"2") for number in range(100))])
    records.documents.request_sweep()
    swept: list[int] = []
    sweep = threading.Thread(target=lambda: swept.append(records.documents.sweep()))
    sweep.start()
    while sweep.is_alive():
        records.conditions.forget("gvc/none")  # a write of the thread that owns the connection
    sweep.join()
    assert swept == [100]
    assert not records.documents.needs_sweep()
    assert records.documents.get_many([blob for blob, _ in used]) == dict(used)
    records.close()


def test_a_sweep_that_fails_reports_that(records: Records, tmp_path: Path) -> None:
    records.close()
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    for more in ("-wal", "-shm"):
        (tmp_path / f"{FILE}{more}").unlink(missing_ok=True)
    with pytest.raises(RecordsError):
        records.documents.sweep()
