"""The memory of a daemon that has worked for long."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.daemon.daemon_with_heap import BLOCK
from tests.support.sandbox import Site, eventually


def test_large_blocks_stay_out_of_the_heap_where_they_would_leave_holes(tmp_path: Path) -> None:
    site, file = Site(tmp_path), tmp_path / "growth"
    with site.daemon("-m", "tests.daemon.daemon_with_heap", str(file)) as running:
        running.signal(signal.SIGUSR2)
        eventually(file.exists, "the daemon writes how its heap grows")
    heap, mapped = map(int, file.read_text().split())
    assert heap < BLOCK
    assert mapped >= 4 * BLOCK
