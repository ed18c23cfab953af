"""Rows about cron workloads: a thousand of them between their times, and when all are due in one minute."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from statistics import median

from tests.bench.host_sandbox import PATIENCE, BenchSandbox, bench_sandbox, share
from tests.bench.table import Row
from tests.bench.workspace import Workspace
from tests.support.sandbox import eventually

WORKLOADS = 1000
MINUTE = 60
LEAD_MINUTES = 4
"""Minutes from the commit to the minute in which all are due: they are applied and idle by then."""


def cron(workspace: Workspace) -> Iterator[Row]:
    """Idle cron workloads, the delay of one of them, and the delays when all start at once."""
    count, seconds = (100, 4.0) if workspace.quick else (WORKLOADS, 30.0)
    with bench_sandbox(workspace.scratch / "cron", {}) as sandbox, sandbox.daemon(fresh=True) as daemon:
        due = int(time.time()) // MINUTE + LEAD_MINUTES
        files = {
            f"shop/job{number}.yaml": _job(sandbox, f"job{number}", f"{due % 60} * * * *") for number in range(count)
        }
        began = sandbox.commit(files | {"shop/tick.yaml": _job(sandbox, "tick", "* * * * *")})
        # The GVC is recorded too.
        eventually(lambda: len(sandbox.recorded()) >= count + 2, "all are applied", PATIENCE)
        yield Row(f"{count:,} cron workloads from the commit to all applied", time.perf_counter() - began, 0)
        _await_second(20)
        busy, resident = share(daemon.process.pid, seconds)
        yield Row(f"{count:,} cron workloads between their times: of one core", busy, 1, "%")
        yield Row("  resident memory", resident, 120, "MB")
        sandbox.drain()
        late = [_delay(word) for word in sandbox.words(due - 1 - int(time.time()) // MINUTE)]
        note = f"the slowest {1000 * max(late):.0f} ms"
        yield Row("  from the minute to the program's begin, one due", median(late), 0.1, note=note)
        late = [float(word) - MINUTE * due for word in sandbox.words(count + 1)]
        note = f"the middle one {median(late):.1f} s; 16 start at once"
        yield Row(f"  from the minute to the last program's begin, {count + 1:,} due", max(late), 0, note=note)


def _job(sandbox: BenchSandbox, name: str, schedule: str) -> str:
    """A cron workload that reports its time."""
    container = {"name": "main", "image": "none", "command": "sh", "args": sandbox.writing_time()}
    spec = {"type": "cron", "containers": [container], "job": {"schedule": schedule}}
    return json.dumps({"kind": "workload", "name": name, "gvc": "shop", "spec": spec}) + "\n"


def _await_second(second: int) -> None:
    """Return at ``second`` of a minute, when nothing is due."""
    time.sleep((second - time.time()) % MINUTE)


def _delay(word: str) -> float:
    """Seconds since the last minute."""
    return float(word) % MINUTE
