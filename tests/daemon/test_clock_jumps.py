"""A clock that is set far ahead, or back, while the daemon runs: it works on as if nothing had happened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.clock import CLOCK_FILE, read_seen_time
from tests.support.pace import on_quiet_machine
from tests.support.programs import skip_unless
from tests.support.sandbox import DaemonSandbox, eventually, workload

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)

YEARS = 365 * 86400


def cpu_seconds(pid: int) -> float:
    """CPU seconds that the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """The most memory that the process has had, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def faked(clock: Path) -> dict[str, str]:
    """The environment of a program whose wall clock is set by the file ``clock``."""
    return {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }


@skip_unless(LIBRARY is not None, "libfaketime is not installed")
def test_a_clock_that_jumps_costs_no_time_and_no_memory(tmp_path: Path) -> None:
    sandbox, clock = DaemonSandbox(tmp_path, drift={"interval": "2s"}), tmp_path / "clock"
    clock.write_text("+0")
    with sandbox.daemon(**faked(clock)) as running:
        eventually(lambda: len(sandbox.recorded()) == 3, "the shop is applied")
        before, pid = memory(running.process.pid), running.process.pid
        for port, jump in enumerate((54 * YEARS, -10 * YEARS, -400 * 86400, 30 * 86400), 7001):
            used = cpu_seconds(pid)
            clock.write_text(f"{jump:+d}")
            commit = sandbox.repo.commit({"shop/api.yaml": workload("api", port)})
            eventually(lambda: sandbox.applied(commit), "the next commit is applied")  # noqa: B023 - waited for at once
            assert on_quiet_machine(cpu_seconds(pid) - used) < 2.0
        assert memory(pid) - before < 20_000
        assert running.stop() == 0


@pytest.mark.slow
@skip_unless(LIBRARY is not None, "libfaketime is not installed")
def test_a_clock_that_is_set_while_the_daemon_is_down_is_reported_by_the_next_one_only(tmp_path: Path) -> None:
    places = {"here": {"engine": "host", "runtime": "process"}, "there": {"engine": "recorded"}}
    sandbox, clock = DaemonSandbox(tmp_path, {}, locations=places), tmp_path / "clock"
    clock.write_text("+0")
    for jump, reported in (("+0", 0), ("+7200", 1), ("+7200", 1), ("-7200", 2)):
        clock.write_text(jump)
        with sandbox.daemon(**faked(clock)) as running:
            eventually(lambda: running.logged("started"), "the daemon has started")
            eventually(lambda: clock_jumps(sandbox) == reported, f"{reported} jumps are reported")  # noqa: B023
            assert running.stop() == 0
        assert clock_jumps(sandbox) == reported
        assert bool(read_seen_time(sandbox.state / CLOCK_FILE).jump) == bool(reported)


def clock_jumps(sandbox: DaemonSandbox) -> int:
    """How many jumps of the clock are reported."""
    with sandbox.records() as records:
        return len([each for each in records.events.list() if each.reason == "ClockJumped"])
