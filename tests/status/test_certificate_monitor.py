"""The certificate of the API: reported when it expires soon, until it is another one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.records.store import Records
from reconciler.records.tables.conditions import HOST
from reconciler.settings import ApiSettings, Settings, TlsSettings
from reconciler.status.certificate_monitor import CertificateMonitor
from tests.support.certificates import issue
from tests.support.clock import FakeClock

DAY = 86_400.0


@pytest.fixture(name="records")
def records_in_memory() -> Iterator[Records]:
    """Records of their own."""
    records = Records.open(None)
    yield records
    records.close()


def make_monitor(records: Records, file: Path | None, clock: FakeClock) -> CertificateMonitor:
    """The monitor of an API that is served with the certificate in ``file``."""
    tls = TlsSettings(file, file) if file is not None else None
    return CertificateMonitor(records, Settings(org="acme", sources=(), api=ApiSettings("0.0.0.0:443", tls=tls)), clock)


def list_reasons(records: Records) -> list[str]:
    return [event.reason for event in records.events.list()]


def test_it_is_reported_once_from_two_weeks_before_its_end_until_it_is_replaced(
    tmp_path: Path, records: Records
) -> None:

    file, clock = tmp_path / "api.crt", FakeClock(time.time())
    file.write_bytes(issue("api.example", end=90).chain_pem)
    monitor = make_monitor(records, file, clock)
    assert monitor.interval > 0
    clock.block(75 * DAY)
    monitor.check()
    assert (list_reasons(records), records.conditions.get(HOST)) == ([], [])
    clock.block(2 * DAY)
    for _ in range(3):
        monitor.check()
    [condition] = records.conditions.get(HOST)
    assert (condition.type, condition.status, str(file) in condition.message) == ("CertificateExpiring", True, True)
    file.unlink()
    monitor.check()
    assert list_reasons(records) == ["CertificateExpiring"]
    file.write_bytes(issue("api.example", end=200).chain_pem)
    monitor.check()
    assert (list_reasons(records), records.conditions.get(HOST)) == (["CertificateExpiring", "CertificateRenewed"], [])


def test_without_tls_a_former_report_ends(tmp_path: Path, records: Records) -> None:

    file, clock = tmp_path / "api.crt", FakeClock(time.time())
    file.write_bytes(b"no certificate")
    make_monitor(records, file, clock).check()
    assert list_reasons(records) == []
    file.write_bytes(issue("api.example", end=3, start=-100).chain_pem)
    make_monitor(records, file, clock).check()
    monitor = make_monitor(records, None, clock)
    assert monitor.interval == 0
    monitor.check()
    assert list_reasons(records) == ["CertificateExpiring", "CertificateRenewed"]
    assert records.conditions.get(HOST) == []
