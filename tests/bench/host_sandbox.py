"""Daemons whose workloads really run, watched from outside: what they use, and how long they make others wait."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pygit2

from tests.bench.measure import Failed
from tests.support.git import File
from tests.support.host_sandbox import HostSandbox
from tests.support.sandbox import DaemonProcess, eventually

PATIENCE = 300.0
"""Seconds that anything may take."""

SERVER = """
import os, socket
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("", int(os.environ["PORT"])))
server.listen(16)
while True:
    asker, _ = server.accept()
    asker.recv(4096)
    asker.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    asker.close()
"""
"""Answers any request with little of Python, since a hundred of it begin at once."""

_TICK = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """CPU seconds of one process since its start, without its children, and its resident megabytes."""

    cpu: float
    resident: float


class BenchSandbox(HostSandbox):
    """A sandbox with the intervals that operators have, and a pipe in which its programs report their start."""

    def __init__(self, path: Path, files: Mapping[str, File], **settings: object) -> None:
        plain = {
            "sources": [{"name": "main", "url": str(path / "main.git"), "branch": "main"}],
            "host": {"terminationScale": 0.002},
            "prune": {"percent": 100},
            "log": {"format": "json", "level": "info"},
        }
        super().__init__(path, files, **(plain | settings))
        self._pipe = path / "began"
        os.mkfifo(self._pipe)
        self._pipe.chmod(0o622)
        # Open for writing too, so that it never ends.
        self._reading = os.open(self._pipe, os.O_RDWR | os.O_NONBLOCK)
        self._pauses_file = path / "pause"

    def writing_mark(self, mark: str) -> list[str]:
        """Arguments of a shell that writes ``mark`` to the pipe and then idles."""
        return ["-c", f"echo {mark} >{self._pipe}; exec sleep 1000000"]

    def writing_time(self) -> list[str]:
        """Arguments of a shell that writes the time, in seconds since the epoch, to the pipe."""
        return ["-c", f"date +%s.%N >{self._pipe}"]

    def began(self, mark: str) -> float:
        """When ``mark`` arrived (perf_counter). Raises Failed where it never does."""
        self._read(lambda received: mark in received, mark)
        return time.perf_counter()

    def drain(self) -> None:
        """Read what was written so far."""
        while select.select([self._reading], [], [], 0.0)[0]:
            os.read(self._reading, 4096)

    def words(self, count: int) -> list[str]:
        """The next ``count`` words. Raises Failed where they do not come."""
        return self._read(lambda received: len(received) >= count, f"{count} words")

    def _read(self, complete: Callable[[list[str]], bool], what: str) -> list[str]:
        received, deadline = "", time.perf_counter() + PATIENCE
        while not (received.endswith("\n") and complete(received.split())):
            if not select.select([self._reading], [], [], max(0.0, deadline - time.perf_counter()))[0]:
                raise Failed(f"no program ever wrote {what}:\n{(self.path / 'daemon.log').read_text()[-2000:]}")
            received += os.read(self._reading, 4096).decode()
        return received.split()

    def commit(self, files: Mapping[str, File]) -> float:
        """Commit ``files``; when the branch was moved (perf_counter)."""
        commit_id = self.repo.commit(files, branch="next", parent=self.repo.git("rev-parse", "main"))
        time.sleep(0.3)  # the daemon notices the other branch too, and must be idle again
        began = time.perf_counter()
        pygit2.Repository(str(self.repo.path)).references["refs/heads/main"].set_target(commit_id)
        return began

    def wait_healthy(self, *names: str) -> None:
        """Return when all of these workloads are."""
        for name in names:
            eventually(partial(self.healthy, f"workload/shop/{name}@here"), f"{name} is healthy", PATIENCE)

    @contextlib.contextmanager
    def watched(self) -> Iterator[DaemonProcess]:
        """A daemon of which the longest pause can be asked."""
        with self.daemon(
            "-m", "tests.bench.loop_monitor", str(self.settings_file), str(self._pauses_file), fresh=True
        ) as it:
            yield it

    @contextlib.contextmanager
    def pauses(self, daemon: DaemonProcess) -> Iterator[list[float]]:
        """Watch the daemon's loop meanwhile; in the end the list has its longest pause and its longest work."""
        longest: list[float] = []
        daemon.signal(signal.SIGUSR1)
        yield longest
        self._pauses_file.unlink(missing_ok=True)
        daemon.signal(signal.SIGUSR2)
        eventually(self._pauses_file.exists, "the daemon writes its pauses", PATIENCE)
        longest += map(float, self._pauses_file.read_text().split())


@contextlib.contextmanager
def bench_sandbox(path: Path, files: Mapping[str, File], **settings: object) -> Iterator[BenchSandbox]:
    """A sandbox of which nothing is left running."""
    sandbox = BenchSandbox(path, files, **settings)
    try:
        yield sandbox
    finally:
        sandbox.end()


def used(pid: int) -> Used:
    """What a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    return Used((int(fields[11]) + int(fields[12])) / _TICK, int(status.partition("VmRSS:")[2].split()[0]) / 1024)


def share(pid: int, seconds: float) -> tuple[float, float]:
    """Percent of one core that a process uses for ``seconds`` from now on; its resident megabytes in the end."""
    before, began = used(pid), time.perf_counter()
    time.sleep(seconds)
    after = used(pid)
    return 100 * (after.cpu - before.cpu) / (time.perf_counter() - began), after.resident


def manifest(name: str, container: Mapping[str, object], replicas: int = 1) -> str:
    """A standard workload of one container, scaled by its CPU within ``replicas``."""
    scale = {"metric": "cpu", "target": 95, "minScale": replicas, "maxScale": replicas}
    spec = {
        "type": "standard",
        "containers": [{"name": "main", "image": "none", **container}],
        "defaultOptions": {"autoscaling": scale, "capacityAI": False},
    }
    return json.dumps({"kind": "workload", "name": name, "gvc": "shop", "spec": spec}) + "\n"


def server(name: str, replicas: int) -> str:
    """A workload that is asked over HTTP whether it is ready and alive, as often as probes ask by default."""
    probe = {"httpGet": {"path": "/"}}
    container = {"command": "python3", "args": ["-SEc", SERVER], "ports": [{"number": 8080}]}
    return manifest(name, container | {"readinessProbe": probe, "livenessProbe": probe}, replicas)
