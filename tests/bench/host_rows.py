"""Rows about the host engine, in daemons of their own whose programs really run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from tests.bench.host_sandbox import PATIENCE, BenchSandbox, bench_sandbox, manifest, server, share
from tests.bench.measure import Failed
from tests.bench.table import Row
from tests.bench.workspace import Workspace
from tests.support.sandbox import DaemonProcess, eventually

REST_SECONDS = 4.0
"""Seconds after a start in which a daemon is not idle yet."""
NAMES = ("one", "two", "three", "four")
EACH = (25, 75)
"""Replicas of each of them: a hundred, and three hundred."""
LIMIT = 0.3
"""Seconds from a commit to a program's first words."""


def host(workspace: Workspace) -> Iterator[Row]:
    """Idle daemons, commits that start programs, and hundreds of replicas from their start to their end."""
    with _explained():
        yield from _idle(workspace, "recorded engine")
        yield from _idle(workspace, "host engine without workloads", here={"engine": "host", "runtime": "process"})
        yield from _busy(workspace)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        raise Failed("\n".join([str(error), *getattr(error, "__notes__", ())])) from None


def _seconds(workspace: Workspace) -> float:
    return 4.0 if workspace.quick else 30.0


def _idle(workspace: Workspace, what: str, **bound: object) -> Iterator[Row]:
    places = {"here": {"engine": "recorded"}} | bound
    with (
        bench_sandbox(workspace.scratch / f"idle-{len(bound)}", {}, locations=places) as sandbox,
        sandbox.daemon(fresh=True) as daemon,
    ):
        time.sleep(REST_SECONDS)
        busy, resident = share(daemon.process.pid, _seconds(workspace))
    yield Row(f"idle daemon, {what}: of one core", busy, 0.5, "%")
    yield Row("  resident memory", resident, 120, "MB")


def _busy(workspace: Workspace) -> Iterator[Row]:
    with bench_sandbox(workspace.scratch / "busy", {}) as sandbox, sandbox.watched() as daemon:
        sandbox.commit({"shop/web.yaml": _marking(sandbox, "first")})
        sandbox.began("first")
        yield from _started(sandbox, "1 replica", workspace.often(20))
        for each in EACH[:1] if workspace.quick else EACH:
            yield from _beside(workspace, sandbox, daemon, each)


def _beside(workspace: Workspace, sandbox: BenchSandbox, daemon: DaemonProcess, each: int) -> Iterator[Row]:
    files = {f"shop/{name}.yaml": server(name, each) for name in NAMES}
    replicas = len(NAMES) * each
    with sandbox.pauses(daemon) as pauses:
        began = sandbox.commit(files)
        sandbox.wait_healthy(*NAMES)
        taken = time.perf_counter() - began
    yield Row(f"{replicas} replicas from the commit to all healthy", taken, 0, note=_paused(pauses))
    time.sleep(REST_SECONDS)
    yield from _steady(workspace, daemon, replicas)
    yield from _started(sandbox, f"{replicas} replicas besides", workspace.often(20))
    with sandbox.pauses(daemon) as pauses:
        began = sandbox.commit(dict.fromkeys(files))
        eventually(lambda: not any(sandbox.replicas(name) for name in NAMES), "all are gone", PATIENCE)
        taken = time.perf_counter() - began
    yield Row(f"{replicas} replicas from the commit to the last one gone", taken, 0, note=_paused(pauses))


def _steady(workspace: Workspace, daemon: DaemonProcess, replicas: int) -> Iterator[Row]:
    busy, resident = share(daemon.process.pid, _seconds(workspace))
    note = "readiness and liveness over HTTP, every 10 s each"
    yield Row(f"{replicas} replicas that are well: of one core", busy, 5 * replicas / 100, "%", note=note)
    yield Row("  resident memory", resident, 0, "MB")


def _started(sandbox: BenchSandbox, present: str, times: int) -> Iterator[Row]:
    delays = []
    for number in range(times):
        sandbox.wait_healthy("web")
        mark = f"{present.replace(' ', '-')}-{number}"
        began = sandbox.commit({"shop/web.yaml": _marking(sandbox, mark)})
        delays.append(sandbox.began(mark) - began)
    note = f"the slowest {1000 * max(delays):.0f} ms"
    yield Row(f"commit to the new program's begin, {present}", median(delays), LIMIT, note=note)


def _marking(sandbox: BenchSandbox, mark: str) -> str:
    return manifest("web", {"command": "sh", "args": sandbox.writing_mark(mark)})


def _paused(pauses: list[float]) -> str:
    longest, hardest = pauses
    return f"the event loop paused for {1000 * longest:.0f} ms at most, computing for {1000 * hardest:.0f} ms"
