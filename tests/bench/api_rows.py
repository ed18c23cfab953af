"""Rows about the HTTP API: reads while runs go on, pages, watchers, and a server at rest."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from reconciler.api.call import MOST_BODY
from reconciler.daemon.api_process import SOCKET
from reconciler.model.key import Key
from reconciler.records.store import FILE, Records
from tests.bench.generate import commit_change, commit_file
from tests.bench.host_sandbox import share, used
from tests.bench.measure import BIN, Failed, run
from tests.bench.table import Row
from tests.bench.workspace import Installation, Workspace
from tests.support.sandbox import eventually

CLIENTS = 8
WATCHERS = 500
SECRET = b"of the bench"
"""What signs webhooks."""
ACCOUNTS = ("bench-query", "bench-names")
"""Service accounts that may view a part of the workloads."""


def api(workspace: Workspace) -> Iterator[Row]:
    """Reads of single resources and of pages, changes for many watchers, and the server at rest."""
    installation = workspace.applied(workspace.count)
    seconds = 2.0 if workspace.quick else 10.0
    with served(workspace, installation) as (pid, socket):
        busy, _ = share(pid, seconds)
        yield Row("idle HTTP API: memory of its process", proportional_memory(pid), 27, "MB")
        yield Row("  of one core", busy, 0.2, "%")
        named = _workloads(installation)
        paths = [f"/org/acme/gvc/{gvc}/workload/{name}" for gvc, name in named[::3]]
        stop = threading.Event()
        pushing = threading.Thread(target=_push, args=(installation.repository, stop))
        pushing.start()
        try:
            yield from _single_reads(workspace, Load(pid, socket, paths))
        finally:
            stop.set()
            pushing.join()
        cursors = [_encoded(f"workload/{gvc}/{name}") for gvc, name in named[:: max(1, len(named) // 100)]]
        pages = [f"/org/acme/workload?cursor={each}" for each in cursors]
        yield from _pages(workspace, Load(pid, socket, pages, connections=1))
        by_query, by_name = _grant(workspace, installation, socket, named)
        rare = Load(pid, socket, ["/org/acme/workload"], 1, by_query)
        yield from _pages(workspace, rare, " of what a policy selects by a tag")
        yield from _pages(workspace, Load(pid, socket, pages, 1, by_name), " of 200 that a policy names")
        yield _deliveries(workspace, socket)
        before = proportional_memory(pid)
        taken, memory = asyncio.run(_watch(socket, pid, installation.repository, workspace.often(20)))
        note = f"from the commit on, of {len(taken)}; with the run that applies it"
        yield Row(f"a change reaches all of {WATCHERS} watchers, at most", max(taken), 0.25, note=note)
        yield Row("  memory that they take", max(0.0, memory - before), 60, "MB")


@contextmanager
def served(
    workspace: Workspace, installation: Installation, own_settings: Path | None = None
) -> Iterator[tuple[int, Path]]:
    """A daemon with the API, and with ``own_settings`` instead of those of the installation: its process and socket."""
    settings = installation.settings.with_name("api.yaml")
    secret = installation.settings.with_name("webhook")
    secret.write_bytes(SECRET)
    hook = {"source": "main", "forge": "generic", "secretFile": str(secret)}
    served = {"webhooks": [hook], "rateLimits": {"caller": 0}}
    settings.write_text(f"{(own_settings or installation.settings).read_text()}api: {json.dumps(served)}\n")
    socket = installation.settings.parent / "state" / SOCKET
    with (
        (workspace.scratch / "api.log").open("ab") as log,
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
    pids = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):  # it ended meanwhile
            if b"reconciler.api" in Path(f"/proc/{child}/cmdline").read_bytes():
                pids.append(int(child))
    return pids


def proportional_memory(pid: int) -> float:
    """Megabytes of a process; those that it shares count in part."""
    fields = Path(f"/proc/{pid}/smaps_rollup").read_text().partition("\nPss:")[2].split()
    return int(fields[0]) / 1024


def _push(repository: Path, stop: threading.Event) -> None:
    """Commit until ``stop`` is set, so that runs go on."""
    seed = 4_000_000
    while not stop.wait(0.1):
        commit_change(repository, 1, seed)
        seed += 1


class Load(NamedTuple):
    """Random requests for ``paths`` of the server ``pid``, each connection with one at a time, for the bearer of a
    key or the root of this host."""

    pid: int
    socket: Path
    paths: list[str]
    connections: int = CLIENTS
    key: str = ""

    def measured(self, workspace: Workspace) -> dict[str, Any]:
        """What ``tests.bench.load`` found, and the CPU seconds of the server for each request."""
        file = workspace.scratch / "load.json"
        file.write_text(
            json.dumps(
                {
                    "socket": str(self.socket),
                    "paths": self.paths,
                    "seconds": 5.0,
                    "connections": self.connections,
                    "key": self.key,
                }
            )
        )
        before = used(self.pid).cpu
        found: dict[str, Any] = json.loads(run([sys.executable, "-m", "tests.bench.load", file]).output)
        return {**found, "server": (used(self.pid).cpu - before) / found["count"]}


def _single_reads(workspace: Workspace, load: Load) -> Iterator[Row]:
    result = load.measured(workspace)
    client = f"{1000 * result['cpu'] / result['count']:.2f} ms of CPU of the client for each"
    note = f"{result['rate']:,.0f} a second by {load.connections} connections; {client}"
    name = f"2,000 reads of single resources of {workspace.count:,} while commits are applied"
    yield Row(name, 2000 / result["rate"], 1, note=note)
    yield Row("  the same, p99", result["p99"], 0.02, note=f"p50 {1000 * result['p50']:.1f} ms")
    yield Row("  CPU of the server for each", result["server"], 0.0005)


def _pages(workspace: Workspace, load: Load, which: str = "") -> Iterator[Row]:
    load.measured(workspace)  # the first page for a caller finds out what their policies select
    found = load.measured(workspace)
    note = f"p99 {1000 * found['p99']:.1f} ms, CPU of the server {1000 * found['server']:.1f} ms"
    yield Row(f"a page of 50{which}, p50", found["p50"], 0.01, note=note)


def _deliveries(workspace: Workspace, socket: Path) -> Row:
    """Webhooks of forges, one after the other, with a body of the largest size."""
    body = b"x" * MOST_BODY
    signed = {"X-Signature-256": f"sha256={hmac.new(SECRET, body, hashlib.sha256).hexdigest()}"}
    taken = []
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket))) as client:
        for number in range(workspace.often(200)):
            started = time.perf_counter()
            headers = {**signed, "X-Delivery-Id": str(number)}
            answer = client.post("http://api/webhook/main", content=body, headers=headers)
            taken.append(time.perf_counter() - started)
            if answer.status_code != 202:
                raise Failed(f"a delivery is refused: {answer.text}")
    taken.sort()
    note = f"p50 {1000 * taken[len(taken) // 2]:.1f} ms; a body of 1 MiB, with the runs that they cause"
    return Row("a webhook is answered, p99", taken[int(0.99 * len(taken))], 0.1, note=note)


def _workloads(installation: Installation) -> list[tuple[str, str]]:
    """GVC and name of every workload."""
    with closing(Records.open(installation.settings.parent / "state" / FILE, read_only=True)) as records:
        keys = records.applied.keys_after("workload/", "", 1_000_000)
    return [(key.gvc, key.name) for key in map(Key.parse, keys)]


def _grant(workspace: Workspace, installation: Installation, socket: Path, named: list[tuple[str, str]]) -> list[str]:
    """Keys of two accounts that may view few workloads: those with a tag, and 200 by their names."""
    links = [f"//gvc/{gvc}/workload/{name}" for gvc, name in named[:: max(1, len(named) // 200)]][:200]
    query = {"kind": "workload", "spec": {"terms": [{"tag": "team", "value": "team-0501"}]}}
    manifests: list[Any] = [{"kind": "serviceaccount", "name": name} for name in ACCOUNTS]
    for name, targets in zip(ACCOUNTS, ({"targetQuery": query}, {"targetLinks": links}), strict=True):
        binding = {"permissions": ["view"], "principalLinks": [f"//serviceaccount/{name}"]}
        manifests.append({"kind": "policy", "name": name, "targetKind": "workload", "bindings": [binding], **targets})
    commit_file(installation.repository, "bench.yaml", "\n---\n".join(map(json.dumps, manifests)).encode())
    paths = [f"http://api/org/acme/serviceaccount/{name}/-key" for name in ACCOUNTS]
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket))) as client:
        for name in ACCOUNTS:
            policy = f"http://api/org/acme/policy/{name}"
            eventually(lambda policy=policy: client.get(policy).status_code == 200, "the policies are applied", 60)
        return [client.post(path, json={}).json()["key"] for path in paths]


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
    memory = proportional_memory(pid)
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
