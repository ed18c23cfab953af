"""A cluster with a GVC and pods of it, and the reader of their location."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.engines.kubernetes.rendering.inputs import ObjectOwner
from reconciler.engines.kubernetes.rendering.names import (
    KEY,
    VERSION,
    build_annotations,
    build_labels,
    build_pod_labels,
)
from reconciler.engines.reading import LogLine, LogSelection
from reconciler.logql.parser import parse_log_query
from reconciler.model.key import Key, Kind
from reconciler.settings import ClusterSettings, LocationSettings, Settings
from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.kubernetes.fake.pods import TimedLine

ORG = "acme"
EVERYTHING = LogSelection(lambda labels: True, lambda block, _: block.lines())


def make_settings(path: Path, kubeconfig: Path, **cluster: Any) -> Settings:
    """Settings with the location ``here`` on a cluster."""
    bound = LocationSettings("kubernetes", cluster=ClusterSettings(kubeconfig, **cluster))
    return Settings(ORG, (), path, locations={"here": bound})


def own(key: Key, location: str = "here", instance: str = ORG) -> ObjectOwner:
    """The owner of an object of ``key``."""
    return ObjectOwner(instance, key, location, "main", "digest", 3)


def namespace_of(gvc: str, location: str = "here", instance: str = ORG) -> dict[str, Any]:
    """The namespace of a GVC, as it is rendered."""
    owner = own(Key(Kind.GVC, "", gvc), location, instance)
    metadata = {"name": gvc, "labels": build_labels(owner, ORG), "annotations": build_annotations(owner)}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def pod_of(key: Key, name: str, containers: Sequence[str] = ("main",), location: str = "here") -> dict[str, Any]:
    """A pod of a workload, as it is rendered."""
    owner = own(key, location)
    labels = {**build_pod_labels(owner, ORG), VERSION: "3"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": key.gvc, "labels": labels, "annotations": {KEY: str(key)}},
        "spec": {"containers": [{"name": container, "image": "nginx:1"} for container in containers]},
    }


def running(containers: Sequence[str] = ("main",), restarts: int = 0, **fields: Any) -> dict[str, Any]:
    """The status of a pod that runs."""
    ended = {"lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}} if restarts else {}
    statuses = [
        {
            "name": container,
            "image": "nginx:1",
            "imageID": "sha256:1",
            "ready": True,
            "restartCount": restarts,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            **ended,
        }
        for container in containers
    ]
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    return {"phase": "Running", "podIP": "10.1.0.7", "conditions": conditions, "containerStatuses": statuses, **fields}


WEB = Key(Kind.WORKLOAD, "shop", "web")


class ReadCluster:
    """A fake API server with the namespace ``shop``, and the reader of ``here``."""

    def __init__(self, server: FakeApiServer, settings: Settings) -> None:
        self.server = server
        self.settings = settings
        self.reader = KubernetesReader(settings, "here")

    def add_pod(self, name: str, key: Key = WEB, status: dict[str, Any] | None = None, **options: Any) -> None:
        """A pod that runs."""
        self.server.create(pod_of(key, name, **options))
        self.set_status(name, running() if status is None else status, key)

    def set_status(self, name: str, status: dict[str, Any], key: Key = WEB) -> None:
        """Write the status of a pod."""
        self.server.patch("Pod", name, key.gvc, {"status": status}, subresource="status")

    def write(self, pod: str, at: str, *texts: str | bytes, previous: bool = False, container: str = "main") -> None:
        """Let a container write lines; ``at`` is a time of the day: ``10:00:00.5``."""
        source = self.server.pods.source("shop", pod, container)
        time, _, fraction = at.partition(".")
        stamp = f"2026-01-31T{time}.{fraction.ljust(9, '0')}Z"
        lines = source.previous if previous else source.lines
        lines += (TimedLine(stamp, text.encode() if isinstance(text, str) else text) for text in texts)

    def restart(self, pod: str, restarts: int = 1, container: str = "main") -> None:
        """Let a container begin anew."""
        source = self.server.pods.source("shop", pod, container)
        source.previous, source.lines = source.lines, []
        self.set_status(pod, running(restarts=restarts))


def select(query: str) -> LogSelection:
    """What a query takes."""
    parsed = parse_log_query(query)
    return LogSelection(parsed.selects, lambda block, stream: parsed.filter_lines(block.lines(), stream))


def texts_of(lines: Sequence[LogLine] | Iterator[LogLine]) -> list[bytes]:
    """What was written."""
    return [line.text for line in lines]


@contextmanager
def read_cluster(path: Path) -> Iterator[ReadCluster]:
    """A server that runs."""
    with fake_api_server(path / "cluster") as server:
        server.create(namespace_of("shop"))
        yield ReadCluster(server, make_settings(path, server.kubeconfig))
