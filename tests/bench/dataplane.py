"""Rows about the data plane: HAProxy under load beside a direct connection and Caddy, and with many workloads."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import msgspec

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.model.key import Key
from reconciler.settings import HoldSettings
from tests.bench.host_sandbox import used
from tests.bench.measure import Failed, percentile, run
from tests.bench.table import Row
from tests.bench.workspace import Workspace
from tests.engines.host.dataplane import test_builtin as builtin
from tests.engines.host.dataplane.haproxy.kit import KEY, SERVICE, Plane, end, play
from tests.engines.host.dataplane.kit import PORT, until
from tests.engines.host.dataplane.load.test_from_zero import release

RATE, CONNECTIONS = 2_000, 8
LEAST_RATE = 10_000
WORKLOADS = 1_900
"""As many as the ports of the default settings suffice for, and a few left."""
WAITING = 1_000
Released = tuple[list[int], float]
"""The statuses of requests that waited, and the seconds from readiness to the last answer."""
ROUNDS = 3
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin"
ORIGIN = """global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend origin
  bind 127.0.0.1:{port}
  http-request return status 200 content-type text/plain string ok
"""


def dataplane(workspace: Workspace) -> Iterator[Row]:
    """What the data plane adds to a request, how many it takes, and what many workloads cost."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 16_384), most))
    yield from _builtin_from_zero(workspace)
    for name in ("haproxy", "wrk", "h2load"):
        if shutil.which(name, path=SBIN) is None:
            raise Failed(f"{name} is not installed; `tests/setup-debian.sh bench` installs what is missing")
    path = workspace.scratch / "dataplane"
    path.mkdir()
    rows: list[Row] = []
    for story in (_under_load, _from_zero, _with_many):

        async def collect(plane: Plane, story=story) -> None:  # type: ignore[no-untyped-def]
            rows.extend(await story(workspace, plane))

        try:
            play(lambda: Plane(path, HoldSettings(requests=WAITING)), collect)
        finally:
            end(path)
        yield from rows
        rows.clear()


async def _under_load(workspace: Workspace, plane: Plane) -> list[Row]:
    with ExitStack() as stack:
        origin = f"127.0.0.1:{stack.enter_context(_origin(workspace.scratch))}"
        plane.dataplane.update(KEY, (Endpoint("origin", origin, {str(PORT): origin}, 1),))
        ours = await plane.serve(SERVICE)
        await asyncio.to_thread(_pin, plane.worker, 0)
        targets = {"a direct connection": origin, "HAProxy": ours}
        if shutil.which("caddy", path=SBIN) is not None:
            targets["Caddy"] = f"127.0.0.1:{stack.enter_context(_caddy(workspace.scratch, origin))}"
        latencies = await asyncio.to_thread(_measure, workspace, targets)
    rows = []
    (direct50, direct99, _), *_ = latencies.values()
    for name, (p50, p99, rate) in latencies.items():
        ours_row = name == "HAProxy"
        if name != "a direct connection":
            what = f"{name} on one core, {RATE:,} requests/s"
            note = f"{1000 * p50:.2f} ms, {1000 * direct50:.2f} ms directly"
            rows.append(Row(f"{what}: added p50", max(p50 - direct50, 1e-6), 0.0003 * ours_row, note=note))
            note = f"{1000 * p99:.2f} ms, {1000 * direct99:.2f} ms directly"
            rows.append(Row("  added p99", max(p99 - direct99, 1e-6), 0.002 * ours_row, note=note))
        count = 10 * LEAST_RATE
        what = f"{count:,} requests by {name}, one core"
        rows.append(Row(what, count / rate, 10 * ours_row, note=f"{rate:,.0f} requests/s"))
    return rows


def _measure(workspace: Workspace, targets: dict[str, str]) -> dict[str, tuple[float, float, float]]:
    """p50 and p99 in seconds at a fixed rate, and requests a second without one, by target; medians of rounds."""
    rounds_of: dict[str, list[tuple[float, float, float]]] = {name: [] for name in targets}
    seconds = "2" if workspace.quick else "5"
    # In turn, so that a slow minute of the machine is one for all.
    for _ in range(ROUNDS):
        for name, address in targets.items():
            log = workspace.scratch / "requests.log"
            log.unlink(missing_ok=True)
            text = str(RATE // CONNECTIONS)
            run(
                [
                    "taskset",
                    "-c",
                    "1",
                    "h2load",
                    "--h1",
                    "-c",
                    str(CONNECTIONS),
                    "--rps",
                    text,
                    "-D",
                    seconds,
                    f"--log-file={log}",
                    f"http://{address}/",
                ]
            )
            lines = [line.split() for line in log.read_text().splitlines()]
            if not lines or any(status != "200" for _, status, _ in lines):
                raise Failed(f"{name} did not answer all requests")
            times = [int(taken) / 1e6 for *_, taken in lines]
            done = run(["taskset", "-c", "1", "wrk", "-t", "1", "-c", "32", "-d", seconds, f"http://{address}/"])
            rate = float(done.output.partition("Requests/sec:")[2].split()[0])
            rounds_of[name].append((percentile(times, 0.5), percentile(times, 0.99), rate))
    return {name: tuple(map(median, zip(*rounds, strict=True))) for name, rounds in rounds_of.items()}  # type: ignore[misc]


async def _from_zero(_: Workspace, plane: Plane) -> list[Row]:
    return [_from_readiness(await release(plane, WAITING), "HAProxy")]


def _builtin_from_zero(workspace: Workspace) -> Iterator[Row]:
    releases: list[Released] = []

    async def story(plane: builtin.Plane) -> None:
        releases.append(await release(plane, WAITING))

    for number in range(ROUNDS):
        path = workspace.scratch / f"builtin-{number}"
        builtin.play(lambda path=path: builtin.Plane(path, HoldSettings(requests=WAITING)), story)  # type: ignore[misc]
    yield _from_readiness(sorted(releases, key=lambda each: each[1])[ROUNDS // 2], "builtin")


def _from_readiness(released: Released, where: str) -> Row:
    statuses, seconds = released
    if statuses != [200] * WAITING:
        raise Failed(f"{WAITING - statuses.count(200)} of {WAITING} requests that waited were refused")
    note = "client, daemon and replica are one process; 5 ms of service time"
    return Row(f"{WAITING:,} requests wait at {where}: readiness to last answer", seconds, 0.3, note=note)


async def _with_many(workspace: Workspace, plane: Plane) -> list[Row]:
    count = WORKLOADS // (10 if workspace.quick else 1)
    keys = [Key(KEY.kind, f"gvc-{number % 40}", f"workload-{number}") for number in range(count)]
    with _origin(workspace.scratch) as port:
        ready = [Endpoint(name, f"127.0.0.1:{port}", {str(PORT): f"127.0.0.1:{port}"}, 1) for name in ("a", "b", "c")]
        for key in keys:
            plane.dataplane.update(key, tuple(ready[:2]))
            plane.dataplane.publish(msgspec.structs.replace(SERVICE, key=key))
        await until(lambda: all(plane.dataplane.address(key) for key in keys))
        await asyncio.sleep(4)
        taken = []
        for key in keys[: workspace.often(100)]:
            began = time.perf_counter()
            plane.dataplane.update(key, tuple(ready[1:]))
            await plane.dataplane.synchronize(key)
            taken.append(time.perf_counter() - began)
        what = f"{count:,} workloads in HAProxy"
        rows = [Row(f"{what}: change of one", median(taken), 0.05, note=f"the slowest {1000 * max(taken):.1f} ms")]
        rows.append(Row("  resident memory of HAProxy", used(plane.worker).resident, 300, "MB"))
        for scaled, name in ((True, "all scale by requests"), (False, "none scales by requests")):
            for key in keys:
                plane.dataplane.publish(msgspec.structs.replace(SERVICE, key=key, scales_by_requests=scaled))
            await asyncio.sleep(4)
            began, own, theirs = time.perf_counter(), time.process_time(), used(plane.worker).cpu
            for _ in range(3 if workspace.quick else 15):
                await asyncio.sleep(2)
                await plane.dataplane.traffic()
            passed = time.perf_counter() - began
            own, theirs = time.process_time() - own, used(plane.worker).cpu - theirs
            note = f"the daemon's part, of one core; HAProxy {100 * theirs / passed:.2g} %"
            rows.append(Row(f"  comparisons, {name}", 100 * own / passed, 2, "%", note=note))
    return rows


@contextmanager
def _origin(directory: Path) -> Iterator[int]:
    """A program that answers faster than any proxy; its port."""
    port = _free_port()
    file = directory / "origin.cfg"
    file.write_text(ORIGIN.format(port=port))
    with _running(["taskset", "-c", "1", "haproxy", "-db", "-f", str(file)], port):
        yield port


@contextmanager
def _caddy(directory: Path, origin: str) -> Iterator[int]:
    port = _free_port()
    file = directory / "Caddyfile"
    file.write_text(f"{{\n admin off\n}}\nhttp://:{port} {{\n reverse_proxy {origin}\n}}\n")
    words = ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]
    with _running(["taskset", "-c", "0", *words], port, HOME=str(directory)):
        yield port


@contextmanager
def _running(words: list[str], port: int, **environ: str) -> Iterator[None]:
    """A program that listens at ``port``, and ends at the end."""
    env = {"PATH": SBIN, **environ}
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) as program:
        try:
            deadline = time.perf_counter() + 20
            while not _listens(port):
                if program.poll() is not None or time.perf_counter() > deadline:
                    raise Failed(f"{' '.join(words)} does not listen")
                time.sleep(0.05)
            yield
        finally:
            program.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _pin(pid: int, core: int) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})
