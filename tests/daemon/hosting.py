"""Sites whose location ``here`` is this machine: workloads that any shell can run, and nothing left running after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reconciler.clock import SystemClock
from reconciler.engines.host.processes.runtime import ProcessRuntime
from reconciler.engines.host.replica import Replica
from reconciler.engines.host.store import Store
from tests.daemon.kit import Site
from tests.gitkit import File

LONG = 30.0
"""Seconds that a test waits for processes of a machine that is busy with others."""

HERE = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"
FOREVER = "while :; do sleep 0.1; done"


def program(name: str, script: str = FOREVER, replicas: int = 2, more: str = "") -> str:
    """A standard workload that runs ``script``; ``more`` are further lines of its spec."""
    return f"""kind: workload
name: {name}
spec:
  type: standard
  defaultOptions: {{autoscaling: {{metric: disabled, minScale: {replicas}, maxScale: {replicas}}}, capacityAI: false}}
  containers:
    - {{name: main, image: //image/{name}:1, command: /bin/sh, args: ["-c", "{script}"]}}
{more}"""


SHOP: dict[str, File] = {"shop/gvc.yaml": HERE, "shop/api.yaml": program("api")}


class HostSite(Site):
    """A site with a place on this host, where ends are five hundred times as quick."""

    def __init__(self, path: Path, files: Mapping[str, File] | None = None, **settings: Any) -> None:
        settings = {"locations": {"here": {"engine": "host"}}, "host": {"terminationScale": 0.002}, **settings}
        super().__init__(path, SHOP if files is None else files, **settings)
        self.root = self.state / "host" / "here"

    def replicas(self, name: str = "api") -> dict[str, Replica]:
        """The replicas of a workload, as they are kept on disk."""
        return {each.name: each for each in Store(self.root / "replicas").load()[0] if each.key.name == name}

    def well(self, name: str = "api", replicas: int = 2) -> bool:
        """Whether a workload is recorded as healthy, and so many replicas of it are ready and no others there."""
        record, there = self.recorded().get(f"workload/shop/{name}@here"), self.replicas(name).values()
        return record is not None and record.health == "Healthy" and [each.ready for each in there] == [True] * replicas


@contextlib.contextmanager
def host_site(path: Path, files: Mapping[str, File] | None = None, **settings: Any) -> Iterator[HostSite]:
    """A site on this host; whatever it left running is ended."""
    site = HostSite(path, files, **settings)
    try:
        yield site
    finally:
        asyncio.run(_emptied(site.root))


async def _emptied(root: Path) -> None:
    runtime = ProcessRuntime(root, "here", SystemClock())
    await runtime.open(lambda _: None)
    for each in await runtime.list():
        await runtime.remove(each.place.key, each.place.replica)
    await runtime.close()
