"""Rows about probes: a prober in a process of its own, and the containers that it asks in another one."""

from __future__ import annotations

import asyncio
import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

import msgspec

from tests.bench.measure import run
from tests.bench.table import Row
from tests.bench.workspace import Workspace

CONTAINERS = 300
PERIOD = 2
LIMIT = 0.0002
"""Seconds of CPU of a probe."""
WARM_UP = 3.0
"""Seconds in which code and memory become warm."""


def probes(workspace: Workspace) -> Iterator[Row]:
    """What a probe over HTTP costs."""
    seconds = 4 if workspace.quick else 20
    measured = run([sys.executable, "-m", "tests.bench.probe_rows", "measure", str(seconds)])
    result = json.loads(measured.output.splitlines()[-1])
    what, note = (
        f"a probe of {CONTAINERS} replicas, two each in {PERIOD} s",
        f"{100 * result['share']:.1f} % of one core",
    )
    yield Row(what, result["cpu"], LIMIT, note=note, cpu=result["cpu"])


def measure(seconds: float) -> dict[str, float]:
    """CPU seconds of a probe, and the share of one core that all of them take."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.probe_rows", "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    ports = [int(port) for port in server.stdout.readline().split()]
    try:
        cpu = asyncio.run(_probe(ports, seconds))
    finally:
        server.stdin.close()
        server.wait()
    return {"cpu": cpu / (2 * len(ports) / PERIOD), "share": cpu}


async def _probe(ports: list[int], seconds: float) -> float:
    """CPU seconds of this process in a second in which it probes ``ports``."""
    from reconciler.clock import SystemClock
    from reconciler.engines.host.decisions.replica import ReplicaContainer
    from reconciler.engines.host.probes.prober import Prober
    from reconciler.engines.host.runtimes.protocol import ContainerId
    from reconciler.engines.workload.spec import ContainerSpec
    from reconciler.model.key import Key
    from reconciler.model.kinds.workload import Probe

    clock, probe = SystemClock(), msgspec.convert({"httpGet": {"path": "/"}, "periodSeconds": PERIOD}, Probe)
    prober, changes = Prober(NoCommands(), clock, lambda verdict: changes.append(verdict.ok)), list[bool]()
    container = ContainerSpec("main", ports=(8080,), readiness=probe, liveness=probe)
    seen = ReplicaContainer("main", started=clock.monotonic() - 100, ready=True)
    for port in ports:
        place = ContainerId(Key.parse("workload/shop/web"), f"web-{port}", "main")
        prober.watch(place, container, {8080: port}, seen)
    await asyncio.sleep(WARM_UP)
    began, used = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    used, taken = time.process_time() - used, time.perf_counter() - began
    await prober.close()
    assert not changes
    return used / taken


class NoCommands:
    """A runtime for probes that are no commands."""

    def find_processes(self, _: object) -> frozenset[int]:
        """There are none."""
        return frozenset()

    async def exec(self, *_: object) -> NoReturn:
        """Nothing runs."""
        raise NotImplementedError


class Server:
    """Answers at as many ports as there are containers, until the standard input ends."""

    def __init__(self) -> None:
        self._selector = selectors.EpollSelector()

    def run(self) -> None:
        """Serve to the end."""
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(CONTAINERS)]
        for each in listeners:
            self._selector.register(each, selectors.EVENT_READ, self._accept)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        print(*(listener.getsockname()[1] for listener in listeners), flush=True)
        ready = [key for key, _ in self._selector.select()]
        while all(key.data for key in ready):
            for key in ready:
                key.data(key.fileobj)
            ready = [key for key, _ in self._selector.select()]

    def _accept(self, listener: socket.socket) -> None:
        self._selector.register(listener.accept()[0], selectors.EVENT_READ, self._answer)

    def _answer(self, connection: socket.socket) -> None:
        if connection.recv(4096):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        self._selector.unregister(connection)
        connection.close()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        Server().run()
    else:
        print(json.dumps(measure(float(sys.argv[2]))))
