"""A daemon whose workloads really run here: manifests, ways to ask what runs, and an end to it all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reconciler.clock import SystemClock
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.dataplane.haproxy.discovery import find_master
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.reading.trial import end_replicas
from reconciler.engines.host.runtimes.process.runtime import ProcessRuntime
from tests.support.git import File
from tests.support.sandbox import DaemonSandbox

GVC = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"

SERVER = """
import os, sys, time, _socket, _thread
def answer(link):
    client = _socket.socket(fileno=link)
    received = b""
    while b"\\r\\n\\r\\n" not in received:
        more = client.recv(65536)
        if not more:
            return client.close()
        received += more
    words = received.split(b" ", 2)
    broken = words[1:2] == [b"/healthz"] and os.environ.get("BROKEN")
    body = os.environ.get("GREETING", "").encode()
    head = f"HTTP/1.0 {500 if broken else 200} -\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    client.sendall(head.encode() + body)
    client.close()
server = _socket.socket()
server.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
server.bind(("", int(os.environ["PORT"])))
server.listen(128)
while True:
    _thread.start_new_thread(answer, (server._accept()[0],))
"""
"""Greets at any path; unhealthy where BROKEN is set.

It starts in half the CPU time of one with `socketserver`.
"""


def served(name: str = "web", *, replicas: int = 2, command: str = "python3", args: Any = None, **more: Any) -> str:
    """A standard workload that serves; ``more`` are fields of its container (``env`` a mapping) or of its spec."""
    container: dict[str, Any] = {
        "name": "main",
        "image": "none",
        "command": command,
        "args": ["-u", "-c", SERVER] if args is None else args,
        "ports": [{"number": 8080}],
        "readinessProbe": {"httpGet": {"path": "/healthz"}, "periodSeconds": 1},
    }
    inside = {"env", "ports", "readinessProbe", "livenessProbe", "lifecycle", "volumes", "workingDir", "inheritEnv"}
    container |= {field: value for field, value in more.items() if field in inside and field != "env"}
    container["env"] = [{"name": key, "value": value} for key, value in more.get("env", {}).items()]
    scale = {"metric": "disabled", "minScale": replicas, "maxScale": max(replicas, 1)}
    spec: dict[str, Any] = {"type": "standard", "containers": [{k: v for k, v in container.items() if v is not None}]}
    spec["defaultOptions"] = {"autoscaling": scale, "capacityAI": False}
    spec |= {field: value for field, value in more.items() if field not in inside}
    return json.dumps({"kind": "workload", "name": name, "gvc": "shop", "spec": spec}) + "\n"


class HostSandbox(DaemonSandbox):
    """A sandbox whose location ``here`` is this machine; without another setting, it has the built-in data plane."""

    def __init__(self, path: Path, files: Mapping[str, File], **settings: Any) -> None:
        host = {"terminationScale": 0.005, "volumes": "directory", **settings.pop("host", {})}
        combined = {"locations": {"here": {"engine": "host"}}, "host": host, **settings}
        super().__init__(path, {"shop/gvc.yaml": GVC, **files}, **combined)
        let_others_through(path)

    def configure(self, **settings: Any) -> None:
        """Change the settings. The start of a HAProxy costs more than most tests, images need a registry."""
        if "locations" in settings:
            bound = settings["locations"].items()
            plain = {"dataplane": "builtin", "runtime": "process"}
            settings["locations"] = {at: (plain if each["engine"] == "host" else {}) | each for at, each in bound}
        super().configure(**settings)

    def replicas(self, name: str, location: str = "here") -> dict[str, Replica]:
        """The replicas of a workload as they are on disk, by name."""
        found, _ = ReplicaStore(self.state / "host" / location / "replicas").load()
        return {each.name: each for each in found if each.key.name == name}

    def ready(self, name: str, location: str = "here") -> list[str]:
        """``address:port`` of each replica in the pool."""
        file = self.state / "host" / location / "endpoints" / "shop" / f"{name}.json"
        return [each["address"] for each in json.loads(file.read_bytes())["replicas"]] if file.exists() else []

    def greetings(self, name: str) -> set[str]:
        """The answers of the replicas in the pool."""
        return {fetch(address) for address in self.ready(name)}

    def healthy(self, key: str = "workload/shop/web@here") -> bool:
        """Whether it is recorded as Healthy."""
        record = self.recorded().get(key)
        return record is not None and record.health == "Healthy"

    def message(self, key: str = "workload/shop/web@here") -> str:
        """The message of its deployment."""
        record = self.recorded().get(key)
        return str(json.loads(record.state).get("status", {}).get("message", "")) if record is not None else ""

    def address(self, key: str = "workload/shop/web@here") -> str:
        """Where the workload is served; "" until its status is first observed."""
        return str(json.loads(self.recorded()[key].state).get("status", {}).get("address", ""))

    def programs(self) -> dict[int, str]:
        """Every process that replicas of this sandbox have started, wrappers left out: its command by its pid."""
        return dict(marked(self.state))

    def end(self) -> None:
        """Kill what still runs."""
        for location in self.settings["locations"]:
            asyncio.run(end_replicas(ProcessRuntime(self.state / "host" / location, location, SystemClock())))
        for directory in (self.state / "host").glob("*/dataplane/haproxy"):
            if (found := find_master(directory)) is not None:
                os.killpg(found, signal.SIGKILL)
        for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
            if (point := line.split()[4]).startswith(f"{self.state}/"):
                subprocess.run(["umount", "-l", point], check=True)


def shared_folder(path: Path) -> Path:
    """The directory ``shared`` in ``path``, a directory of a test: programs of any user write files there."""
    shared = path / "shared"
    if not shared.exists():
        shared.mkdir(parents=True)
        shared.chmod(0o777)
    return shared


@contextlib.contextmanager
def open_place() -> Iterator[Path]:
    """A directory that every user gets to."""
    path = Path(tempfile.mkdtemp(prefix="reconciler-test-"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def let_others_through(path: Path) -> None:
    """Let the users of workloads reach ``path``, a directory of a test, which pytest makes for its own user alone."""
    for folder in (path, *path.parents):
        found = folder.stat()
        if found.st_uid == os.geteuid() and not found.st_mode & stat.S_IXOTH:
            folder.chmod(stat.S_IMODE(found.st_mode) | stat.S_IXOTH)


@contextlib.contextmanager
def host_sandbox(path: Path, files: Mapping[str, File], **settings: Any) -> Iterator[HostSandbox]:
    """A sandbox of which nothing is left running."""
    sandbox = HostSandbox(path, files, **settings)
    try:
        yield sandbox
    finally:
        sandbox.end()


def fetch(address: str, path: str = "/", patience: float = 60.0) -> str:
    """The answer at ``address:port``."""
    with urllib.request.urlopen(f"http://{address}{path}", timeout=patience) as answer:
        body: bytes = answer.read()
    return body.decode()


def marked(state: Path) -> Iterator[tuple[int, str]]:
    """Live processes with ``state`` in their environment, as those of its replicas have."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(state / "host") in environ and not command[0].startswith(b"reconciler: ") and command[0]:
                yield int(folder.name), b" ".join(command).decode(errors="replace")
