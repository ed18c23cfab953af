"""Rows about containers of images: Podman, a daemon, and Podman's own ways to run the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from statistics import median
from typing import Any

import pytest
import yaml

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.plugin import HostPlugin
from reconciler.records.store import FILE, Records
from reconciler.settings import load_settings
from tests.bench.host_sandbox import PATIENCE, BenchSandbox, bench_sandbox, manifest, share
from tests.bench.measure import Failed, machine_cpu
from tests.bench.table import Row
from tests.bench.workspace import Workspace
from tests.engines.host.provisioning.kit import vault
from tests.support.podman import IMAGE, PodmanService, podman_service
from tests.support.sandbox import eventually

REST_SECONDS = 4.0
NAMES = ("one", "two", "three", "four")
EACH = 25
AT_ONCE = 6
"""Containers that Podman's own command starts at the same time, as the daemon does."""
SERVE = ["-c", "httpd -f -p 8080 -h /etc"]
PROBE = {"httpGet": {"path": "/passwd"}}
LIMITS = (
    "--cpus",
    "0.05",
    "--memory",
    "128m",
    "--pids-limit",
    "2048",
    "--ulimit",
    "nofile=4096:4096",
    "--ulimit",
    "nproc=4096:4096",
)


def containers(workspace: Workspace) -> Iterator[Row]:
    """Commits that start containers, a hundred replicas from their start to their end, and `podman` itself."""
    with ExitStack() as stack:
        try:
            service = stack.enter_context(podman_service())
        except (pytest.skip.Exception, pytest.fail.Exception) as missing:
            raise Failed(str(missing)) from None
        try:
            yield from _ours(workspace, service)
            yield from _theirs(workspace, service)
        except AssertionError as error:
            raise Failed("\n".join([str(error), *getattr(error, "__notes__", ())])) from None


def _ours(workspace: Workspace, service: PodmanService) -> Iterator[Row]:
    count = len(NAMES) * _each(workspace)
    settings: dict[str, Any] = {
        "locations": {"here": {"engine": "host", "runtime": "podman"}},
        "podman": {"socket": str(service.socket)},
    }
    with bench_sandbox(workspace.scratch / "containers", {}, **settings) as sandbox:
        with sandbox.daemon(fresh=True) as daemon:
            yield from _words(sandbox, workspace.often(20))
            files = {f"shop/{name}.yaml": _server(name, _each(workspace)) for name in NAMES}
            began, before = sandbox.commit(files), machine_cpu()
            sandbox.wait_healthy(*NAMES)
            taken, cpu = time.perf_counter() - began, _cpu_since(before)
            yield Row(f"{count} containers from the commit to all healthy", taken, 15 * count / 100, note=cpu)
            time.sleep(REST_SECONDS)
            busy, resident = share(daemon.process.pid, 4.0 if workspace.quick else 30.0)
            note = "the daemon alone; readiness and liveness over HTTP, every 10 s each"
            yield Row(f"{count} containers that are well: of one core", busy, 5, "%", note=note)
            yield Row("  resident memory", resident, 150, "MB")
        yield Row(f"observe {count} replicas", _observed(sandbox, workspace.often(20)), 0.15)
        with sandbox.daemon():
            began = sandbox.commit(dict.fromkeys([*files, "shop/web.yaml"]))
            eventually(lambda: not any(sandbox.replicas(name) for name in NAMES), "all are gone", PATIENCE)
            taken = time.perf_counter() - began
            yield Row(f"{count} containers from the commit to the last one gone", taken, 0)


def _each(workspace: Workspace) -> int:
    return 5 if workspace.quick else EACH


def _server(name: str, replicas: int) -> str:
    container = {"image": IMAGE, "command": "/bin/sh", "args": SERVE, "ports": [{"number": 8080}]}
    return manifest(name, container | {"readinessProbe": PROBE, "livenessProbe": PROBE}, replicas)


def _words(sandbox: BenchSandbox, times: int) -> Iterator[Row]:
    delays = []
    for number in range(times):
        word = f"word-{number}"
        container = {"image": IMAGE, "command": "/bin/sh", "args": ["-c", f"echo {word}; exec sleep 1000000"]}
        lag = time.time() - time.perf_counter()
        began = sandbox.commit({"shop/web.yaml": manifest("web", container)}) + lag
        delays.append(eventually(partial(_spoken, sandbox, word), "the first words", PATIENCE) - began)
        sandbox.wait_healthy("web")
    note = f"the slowest {1000 * max(delays):.0f} ms; the image is there"
    yield Row("commit to the new container's first words", median(delays), 1.0, note=note)


def _spoken(sandbox: BenchSandbox, word: str) -> float:
    """When Podman read ``word`` from a container, in seconds since the epoch; 0 before that."""
    for path in sandbox.state.glob("host/here/**/main/output"):
        for line in path.read_text().splitlines():
            stamp, *_, text = line.split(" ")
            if text == word:
                # Nanoseconds are three digits too many.
                return datetime.fromisoformat(stamp[:26] + stamp[29:]).timestamp()
    return 0.0


def _observed(sandbox: BenchSandbox, times: int) -> float:
    async def story() -> float:
        settings, clock = load_settings(sandbox.settings_file), SystemClock()
        with closing(Records.open(sandbox.state / FILE, clock_now=clock.now)) as records:
            engine = HostPlugin().make(EngineContext(LocationRecords(records, "here"), settings, clock, vault({})))
            assert isinstance(engine, HostEngine)
            await engine.open()
            delays = []
            for _ in range(times):
                began = time.perf_counter()
                assert await engine.observe()
                delays.append(time.perf_counter() - began)
            await engine.close()
        return median(delays)

    return asyncio.run(story())


def _theirs(workspace: Workspace, service: PodmanService) -> Iterator[Row]:
    """The same containers by `podman kube play`, and by the command that a quadlet's unit runs."""
    count = len(NAMES) * _each(workspace)
    file = workspace.scratch / "pods.yaml"
    file.write_text("---\n".join(yaml.safe_dump(_pod(number)) for number in range(count)))
    began, before = time.perf_counter(), machine_cpu()
    _podman(service, "kube", "play", str(file))
    taken, note = time.perf_counter() - began, f"{_cpu_since(before)}; no probes, no rollout"
    yield Row(f"podman kube play: {count} pods of the same", taken, 0, note=note)
    began = time.perf_counter()
    _podman(service, "kube", "down", str(file))
    yield Row("  until they are gone", time.perf_counter() - began, 0)

    def run(number: int) -> None:
        port = ("--publish", f"127.0.0.1:{18000 + number}:8080")
        _podman(
            service,
            "run",
            "--detach",
            "--replace",
            "--rm",
            "--name",
            f"q{number}",
            *LIMITS,
            *port,
            "--entrypoint",
            "/bin/sh",
            IMAGE,
            *SERVE,
        )

    began, before = time.perf_counter(), machine_cpu()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, range(count)))
    taken = time.perf_counter() - began
    note = f"{_cpu_since(before)}; what its unit runs, without systemd; no network of a replica, no probes"
    yield Row(f"a quadlet of the same, {count} times", taken, 0, note=note)
    service.clear()


def _cpu_since(before: float) -> str:
    """The CPU that this machine has used since then: Podman, its monitors and containers belong to no process here."""
    return f"{machine_cpu() - before:.1f} s of CPU of all programs"


def _pod(number: int) -> dict[str, Any]:
    limits = {"cpu": "50m", "memory": "128Mi"}
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["/bin/sh"],
        "args": SERVE,
        "resources": {"limits": limits},
        "ports": [{"containerPort": 8080, "hostPort": 17000 + number, "hostIP": "127.0.0.1"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod{number}"},
        "spec": {"containers": [container]},
    }


def _podman(service: PodmanService, *words: str) -> None:
    command = ["podman", "--remote", "--url", f"unix://{service.socket}", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    if ended.returncode:
        raise Failed(f"{' '.join(command[4:7])}: {ended.stderr[-500:]}")
