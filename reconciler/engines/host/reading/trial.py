"""A trial of this machine: where its workloads answer, and how all of it ends."""

from __future__ import annotations

import json
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from reconciler.clock import SystemClock
from reconciler.engines.host.dataplane.choice import proxy_directory
from reconciler.engines.host.dataplane.haproxy.discovery import retire_proxy
from reconciler.engines.host.dataplane.ports import listening_ports
from reconciler.engines.host.paths import find_directory
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.runtimes.plugins import runtime_plugin, runtimes_in_use
from reconciler.engines.host.runtimes.protocol import Runtime
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.model.key import Key
from reconciler.model.kinds.secret import SecretValue
from reconciler.reasons import Reason
from reconciler.settings import Settings
from reconciler.settings.types import IngressSettings


def find_addresses(root: Path) -> dict[str, str]:
    """The address of each workload that has ready replicas, with their number, by ``GVC/WORKLOAD``.

    HAProxy may serve it later than the first replica is ready.
    """
    addresses, served, ports = {}, listening_ports(), _read_ports(root)
    for name, replicas in _count_ready(root).items():
        if ports.get(name) in served:
            count = "1 replica" if replicas == 1 else f"{replicas} replicas"
            addresses[name] = f"http://127.0.0.1:{ports[name]} ({count})"
    return addresses


def is_serving(root: Path, ingress: IngressSettings | None) -> bool:
    """Whether each workload with ready replicas has its address, and the ``ingress`` its port, if there are any."""
    ready, served, ports = _count_ready(root), listening_ports(), _read_ports(root)
    return all(ports.get(name) in served for name in ready) and (
        ingress is None or not ready or ingress.http_port in served
    )


def _count_ready(root: Path) -> dict[str, int]:
    """The number of ready replicas of each workload that has some, by ``GVC/WORKLOAD``."""
    counts = {}
    for file in list_paths(root, "endpoints/*/*.json"):
        with suppress(FileNotFoundError, KeyError):
            if replicas := len(json.loads(file.read_bytes())["replicas"]):
                counts[f"{file.parent.name}/{file.stem}"] = replicas
    return counts


def _read_ports(root: Path) -> dict[str, int]:
    """The port of each workload, by ``GVC/WORKLOAD``; empty before the first one."""
    with suppress(FileNotFoundError):
        ports: dict[str, int] = json.loads((root / "dataplane" / "ports.json").read_bytes())
        return ports
    return {}


async def end_location(settings: Settings, location: str) -> None:
    """Stop the proxy and all replicas of a location; the next start creates them again. Raises EngineError."""
    root = find_directory(settings.state, location)
    retire_proxy(proxy_directory(root), signal.SIGTERM)
    for name in runtimes_in_use(root):
        await end_replicas(runtime_plugin(name).make(root, location, SystemClock(), settings))
    Files(root, _refuse_secret).prune(())
    for name in ("replicas", "endpoints"):
        shutil.rmtree(root / name, ignore_errors=True)


async def end_replicas(runtime: Runtime) -> None:
    """Stop every replica of a runtime. Raises EngineError."""
    await runtime.open(lambda _: None)
    for key, replica in {(running.place.key, running.place.replica) for running in await runtime.list()}:
        await runtime.remove(key, replica)
    await runtime.close()


def _refuse_secret(key: Key) -> SecretValue:
    raise EngineError(f"{key} can no longer be used", reason=Reason.SECRET_UNAVAILABLE, retry=False)
