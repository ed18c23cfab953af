"""A daemon of a cluster that is killed again and again: the end is the one without kills, to the last object."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.support.sandbox import STATUS, DaemonSandbox, eventually

WORKLOADS = 22
"""Of seven objects each."""
OBJECTS = 150
KINDS = (
    "Namespace",
    "ConfigMap",
    "Deployment",
    "Service",
    "Secret",
    "ServiceAccount",
    "NetworkPolicy",
    "PodDisruptionBudget",
)
GVC = {"kind": "gvc", "name": "shop", "spec": {"staticPlacement": {"locationLinks": ["//location/here"]}}}
DIFFERENT = re.compile(
    r"-(?:env|token)-[0-9a-f]{16,}"
    r"|\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)"
    r"|main@sha1:(?:[0-9a-f]{40}|[0-9a-f]{12})"
    r"|10\.\d+\.\d+\.\d+"
)
"""What differs between two clusters: digests of content with a token, times, commits, addresses."""


class KilledDaemon:
    """A daemon on a cluster of its own, which is killed after some of its requests."""

    def __init__(self, path: Path, server: FakeApiServer) -> None:
        bound = {"engine": "kubernetes", "cluster": {"kubeconfig": str(server.kubeconfig)}}
        self.server = server
        self.sandbox = DaemonSandbox(path, {"gvc.yaml": json.dumps(GVC)}, locations={"here": bound})

    def commit(self, version: int) -> str:
        """A commit that changes all workloads."""
        files = {f"shop/web-{number:02}.yaml": _describe_workload(number, version) for number in range(WORKLOADS)}
        return self.sandbox.repo.commit(files)

    def kill_after(self, requests: int, commit: str) -> None:
        """Run a daemon, and kill it once it has sent that many requests, or has nothing left to apply."""
        self.server.clear_requests()
        with self.sandbox.daemon() as daemon:
            eventually(lambda: len(self.server.requests) >= requests or self.sandbox.applied(commit), "requests")
            daemon.kill()

    def finish(self, commit: str) -> None:
        """Run a daemon until all is applied, healthy and published."""
        with self.sandbox.daemon():
            eventually(lambda: self.sandbox.applied(commit), "the commit is applied")
            eventually(self._is_healthy, "all is healthy")
            eventually(partial(self._is_published, commit), "the status is published")

    def _is_healthy(self) -> bool:
        records = self.sandbox.recorded()
        found = [record for key, record in records.items() if key.startswith("workload/")]
        return len(found) == WORKLOADS and all(record.health == "Healthy" for record in found)

    def _is_published(self, commit: str) -> bool:
        texts = [text for name, text in self._read_status() if "/web-" in name]
        return len(texts) == WORKLOADS and all(commit in text and "Healthy" in text for text in texts)

    def _read_status(self) -> list[tuple[str, str]]:
        """The names and texts of the status files of resources; none before the first status commit."""
        if not self.sandbox.repo.git("branch", "--list", STATUS):
            return []
        names = self.sandbox.repo.git("ls-tree", "-r", "--name-only", STATUS).split()
        return [(name, self.sandbox.status(name)) for name in sorted(names) if "/" in name]

    def list_objects(self) -> list[str]:
        """All objects that the daemon has made, as text."""
        values = (value for kind in KINDS for value in self.server.objects(kind))
        ours = (value for value in values if "reconciler.dev/key" in value["metadata"].get("annotations", {}))
        return sorted(_normalize_text(_strip_object(value)) for value in ours)

    def list_records(self) -> list[str]:
        """All records, as text."""
        records = sorted(self.sandbox.recorded().items())
        names = ("source", "digest", "version", "engine", "health")
        return [json.dumps([key, *(str(getattr(record, name)) for name in names)]) for key, record in records]

    def list_status(self) -> list[str]:
        """The status files of all resources."""
        return [_normalize_text(file) for file in self._read_status()]


def _describe_workload(number: int, version: int) -> str:
    container = {
        "name": "main",
        "image": "nginx:1",
        "ports": [{"number": 8080, "protocol": "http"}],
        "env": [{"name": "A", "value": str(version)}],
    }
    scale = {"metric": "disabled", "minScale": 2, "maxScale": 2}
    spec = {"type": "standard", "containers": [container], "defaultOptions": {"autoscaling": scale}}
    return json.dumps({"kind": "workload", "name": f"web-{number:02}", "gvc": "shop", "spec": spec}) + "\n"


def _strip_object(value: dict[str, Any]) -> Any:
    metadata = value["metadata"]
    spec = {name: part for name, part in value.get("spec", {}).items() if not name.startswith("clusterIP")}
    names = ("name", "namespace", "labels")
    return [value["kind"], *(metadata.get(name) for name in names), spec, sorted(metadata["annotations"])]


def _normalize_text(value: Any) -> str:
    return DIFFERENT.sub("…", json.dumps(value, sort_keys=True))


@contextmanager
def daemon_on_fake(path: Path) -> Iterator[KilledDaemon]:
    with fake_api_server(path / "cluster") as server:
        server.run_controllers()
        yield KilledDaemon(path / "daemon", server)


@pytest.mark.parametrize(("commits", "kills"), [(1, 5), pytest.param(5, 20, marks=pytest.mark.slow)])
def test_a_daemon_that_is_killed_amid_its_requests_ends_as_one_that_is_not(
    tmp_path: Path, commits: int, kills: int
) -> None:
    chance = random.Random(39)
    with daemon_on_fake(tmp_path / "calm") as calm, daemon_on_fake(tmp_path / "killed") as killed:
        for version in range(1, commits + 1):
            calm.finish(calm.commit(version))
            commit = killed.commit(version)
            for _ in range(kills * version // commits - kills * (version - 1) // commits):
                killed.kill_after(chance.randrange(200), commit)
            killed.finish(commit)
        assert len(calm.list_objects()) >= OBJECTS
        assert killed.list_objects() == calm.list_objects()
        assert killed.list_records() == calm.list_records()
        assert killed.list_status() == calm.list_status()
