"""Rows about the HTTP API: reads while runs go on, pages, watchers, and a server at rest."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.daemon.api_process import SOCKET
from tests.bench.generate import commit_change
from tests.bench.ground import Ground, Site
from tests.bench.hostsite import share, used
from tests.bench.measure import BIN, Failed, run
from tests.bench.table import Row
from tests.support.sandbox import eventually

CLIENTS = 8
WATCHERS = 500


def api(ground: Ground) -> Iterator[Row]:
    """Reads of single resources and of pages, changes for many watchers, and the server at rest."""
    site = ground.applied(ground.count)
    seconds = 2.0 if ground.quick else 10.0
    with _served(ground, site) as (pid, socket):
        busy, _ = share(pid, seconds)
        yield Row("idle HTTP API: memory of its process", _proportional(pid), 25, "MB")
        yield Row("  of one core", busy, 0.2, "%")
        named = [ground.workload(index) for index in range(0, ground.count, 7)]
        paths = [f"/org/acme/gvc/{gvc}/workload/{name}" for gvc, name in named]
        stop = threading.Event()
        pushing = threading.Thread(target=_push, args=(site.repository, stop))
        pushing.start()
        try:
            yield from _reads(pid, socket, paths, f"read of one of {ground.count:,} while commits are applied", 0.02)
        finally:
            stop.set()
            pushing.join()
        cursors = [f"workload/{gvc}/{name}" for gvc, name in named[:: len(named) // 100]]
        pages = [f"/org/acme/workload?cursor={_encoded(each)}" for each in cursors]
        yield from _reads(pid, socket, pages, "page of 50", 0.01, clients=1)
        before = _proportional(pid)
        taken, memory = asyncio.run(_watch(socket, pid, site.repository, ground.often(20)))
        note = f"from the commit on, of {len(taken)}; with the run that applies it"
        yield Row(f"a change reaches all of {WATCHERS} watchers, at most", max(taken), 0.25, note=note)
        yield Row("  memory that they take", max(0.0, memory - before), 60, "MB")


@contextmanager
def _served(ground: Ground, site: Site) -> Iterator[tuple[int, Path]]:
    """A daemon with the API: the API's process, and its socket."""
    settings = site.settings.with_name("api.yaml")
    settings.write_text(f"{site.settings.read_text()}api: {{}}\n")
    socket = site.settings.parent / "state" / SOCKET
    with (
        (ground.scratch / "api.log").open("ab") as log,
        subprocess.Popen([BIN / "reconciler", "run", "--settings", settings], stdout=log, stderr=log) as daemon,
    ):
        try:
            eventually(socket.exists, "the API listens", 60)
            eventually(lambda: _children(daemon.pid) != [], "the API runs", 60)
            time.sleep(5)  # the start of both is over
            yield _children(daemon.pid)[0], socket
        finally:
            daemon.terminate()


def _children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in children if b"reconciler.api" in Path(f"/proc/{each}/cmdline").read_bytes()]


def _proportional(pid: int) -> float:
    """Megabytes of a process; those that it shares count in part."""
    fields = Path(f"/proc/{pid}/smaps_rollup").read_text().partition("\nPss:")[2].split()
    return int(fields[0]) / 1024


def _push(repository: Path, stop: threading.Event) -> None:
    """Commit until ``stop`` is set, so that runs go on."""
    seed = 4_000_000
    while not stop.wait(0.1):
        commit_change(repository, 1, seed)
        seed += 1


def _reads(pid: int, socket: Path, paths: list[str], what: str, limit: float, clients: int = CLIENTS) -> Iterator[Row]:
    load = {"socket": str(socket), "paths": paths, "seconds": 5.0, "connections": clients}
    before = used(pid).cpu
    measured = run([sys.executable, "-m", "tests.bench.load", json.dumps(load)])
    found = json.loads(measured.output.splitlines()[-1])
    cpu = (used(pid).cpu - before) / found["count"]
    note = f"{found['rate']:,.0f} a second by {clients} clients, p50 {1000 * found['p50']:.1f} ms"
    yield Row(f"{what}: p99", found["p99"], limit, note=note)
    yield Row("  CPU of the server for each", cpu, limit / 40 if clients > 1 else limit)


async def _watch(socket: Path, pid: int, repository: Path, times: int) -> tuple[list[float], float]:
    """Seconds from each of ``times`` commits until the last watcher has it; megabytes of the server meanwhile."""
    links = []
    for _ in range(WATCHERS):
        reader, writer = await asyncio.open_unix_connection(str(socket))
        writer.write(b"GET /org/acme/workload/-watch HTTP/1.1\r\nHost: api\r\n\r\n")
        await _until(reader, b"event: bookmark")
        links.append((reader, writer))
    taken = []
    for seed in range(times):
        began = time.perf_counter()
        await asyncio.to_thread(commit_change, repository, 1, 5_000_000 + seed)
        await asyncio.gather(*(_until(reader, b"event: modified") for reader, _ in links))
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(0.5)  # further events of the same commit
    memory = _proportional(pid)
    for _, writer in links:
        writer.close()
    return taken, memory


async def _until(reader: asyncio.StreamReader, mark: bytes) -> None:
    received = b""
    while mark not in received:
        if not (part := await asyncio.wait_for(reader.read(65_536), 60)):
            raise Failed(f"a watch ended: {received[-500:]!r}")
        received = received[-len(mark) :] + part


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
