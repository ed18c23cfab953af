"""Lines about requests with an error: they survive a restart, are limited, and end with their workload."""

from __future__ import annotations

from pathlib import Path

from reconciler.engines.host.dataplane.error_log import MOST, ErrorLog
from reconciler.engines.host.logs.collector import Collector
from reconciler.model.key import Key, Kind
from tests.support.clock import FakeClock

WEB, API = Key(Kind.WORKLOAD, "shop", "web"), Key(Kind.WORKLOAD, "shop", "api")


def test_a_flood_fills_no_log_and_takes_no_line_of_another_workload(tmp_path: Path) -> None:
    clock = FakeClock()
    log = ErrorLog(tmp_path / "errors", Collector(tmp_path / "logs", "here", clock), clock)
    for number in range(MOST + 10):
        log.write(WEB, f"line {number}")
    log.write(API, "line")
    path = tmp_path / "errors" / "shop" / "web.log"
    assert len(path.read_text().splitlines()) == MOST
    assert (path.stat().st_mode & 0o777) == 0o600
    assert (tmp_path / "errors" / "shop" / "api.log").read_text() == "line\n"


async def test_lines_of_an_earlier_daemon_are_stored_and_a_deleted_workload_has_no_file(tmp_path: Path) -> None:
    clock = FakeClock()
    ErrorLog(tmp_path / "errors", Collector(tmp_path / "former", "here", clock), clock).write(WEB, "line")
    collector = Collector(tmp_path / "logs", "here", clock)
    log = ErrorLog(tmp_path / "errors", collector, clock)
    log.open()
    assert (await collector.collect()).read == len("line\n")
    log.forget(WEB)
    log.forget(API)
    assert not (tmp_path / "errors" / "shop" / "web.log").exists()
    assert (await collector.collect()).read == 0
