"""A daemon with a location on a Kubernetes cluster, from a commit to the status of what runs there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from reconciler.records.store import FILE
from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.kubernetes.cluster.scripts import Script
from tests.support.rule_cases import private
from tests.support.sandbox import DaemonSandbox, eventually

GVC = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"
SECRET = "kind: secret\nname: db\ntype: dictionary\ndata: {password: {file: db}}\n"
MAY = """kind: identity
name: web
gvc: shop
---
kind: policy
name: web-reveals-db
targetKind: secret
targetLinks: [//secret/db]
bindings: [{permissions: [reveal], principalLinks: [//gvc/shop/identity/web]}]
"""
WEB = "workload/shop/web"


def web(*, suspend: bool = False, image: str = "nginx:1") -> str:
    """A workload with two replicas and a secret."""
    container = {
        "name": "main",
        "image": image,
        "ports": [{"number": 8080, "protocol": "http"}],
        "env": [{"name": "PASSWORD", "value": "platform://secret/db.password"}],
    }
    scale = {"metric": "disabled", "minScale": 2, "maxScale": 2}
    spec = {
        "type": "standard",
        "identityLink": "//identity/web",
        "containers": [container],
        "defaultOptions": {"autoscaling": scale, "suspend": suspend},
    }
    return json.dumps({"kind": "workload", "name": "web", "gvc": "shop", "spec": spec}) + "\n"


@contextmanager
def cluster_sandbox(path: Path) -> Iterator[tuple[DaemonSandbox, FakeApiServer]]:
    """A sandbox whose location ``here`` is a fake cluster with controllers."""
    with fake_api_server(path / "cluster") as server:
        server.run_controllers()
        file = private(path / "host" / "db", "correct-horse")
        files = {"shop/gvc.yaml": GVC, "db.yaml": SECRET, "may.yaml": MAY, "shop/web.yaml": web()}
        sandbox = DaemonSandbox(path, files)
        sandbox.configure(
            locations={"here": {"engine": "kubernetes", "cluster": {"kubeconfig": str(server.kubeconfig)}}},
            secrets={"directory": str(file.parent)},
            drift={"interval": "200ms"},
        )
        yield sandbox, server


def names(server: FakeApiServer, kind: str) -> list[str]:
    return [value["metadata"]["name"] for value in server.objects(kind, "shop")]


def variables(server: FakeApiServer) -> list[str]:
    return [name for name in names(server, "Secret") if "-env-" in name]


def is_healthy(sandbox: DaemonSandbox) -> bool:
    record = sandbox.recorded().get(f"{WEB}@here")
    return record is not None and record.health == "Healthy"


def shown(sandbox: DaemonSandbox, *words: str) -> str:
    """The output of a command that succeeds."""
    result = sandbox.run(*words)
    assert result.returncode == 0, (words, result.stdout, result.stderr)
    return str(result.stdout)


def pods_of(server: FakeApiServer) -> list[dict[str, Any]]:
    return [pod for pod in server.objects("Pod", "shop") if not pod["metadata"].get("deletionTimestamp")]


def test_a_workload_lives_on_a_cluster_from_commit_to_deletion(tmp_path: Path) -> None:
    with cluster_sandbox(tmp_path) as (sandbox, server), sandbox.daemon() as daemon:
        eventually(lambda: is_healthy(sandbox), "it is applied")
        eventually(lambda: "Healthy" in sandbox.status("shop/workload/web.yaml"), "the status branch shows it")
        assert len(pods_of(server)) == 2
        check_views(sandbox, server)

        [former] = eventually(lambda: variables(server), "there are variables")
        (tmp_path / "host" / "db").write_text("battery-staple")
        eventually(lambda: set(variables(server)) - {former}, "the new value has another Secret")
        eventually(lambda: former not in variables(server), "the former Secret is deleted after the rollout")
        eventually(lambda: is_healthy(sandbox), "the rollout ends")

        before = {pod["metadata"]["uid"] for pod in pods_of(server)}
        shown(sandbox, "restart", WEB)
        eventually(lambda: not before & {pod["metadata"]["uid"] for pod in pods_of(server)}, "all pods are replaced")
        eventually(lambda: is_healthy(sandbox), "the restart ends")

        server.delete("Service", "web", "shop")
        eventually(lambda: "web" in names(server, "Service"), "what others delete is made again")

        sandbox.repo.commit({"shop/web.yaml": web(suspend=True)})
        eventually(lambda: not pods_of(server), "a suspended workload has no pods")
        sandbox.repo.commit({"shop/web.yaml": web(image="nginx:2")})
        eventually(lambda: len(pods_of(server)) == 2 and is_healthy(sandbox), "it runs again")

        sandbox.repo.commit({"shop/web.yaml": None})
        delete_web(sandbox, server)
        assert b"battery-staple" not in daemon.log_file.read_bytes()
        assert daemon.logged("bug") == []


def test_the_last_line_of_a_crash_is_for_who_may_read_logs(tmp_path: Path) -> None:
    with cluster_sandbox(tmp_path) as (sandbox, server), sandbox.daemon():
        eventually(lambda: is_healthy(sandbox), "it is applied")
        for pod in pods_of(server):
            server.write_log("shop", pod["metadata"]["name"], "panic: no database")
        server.pods.follow("shop/web-*", Script(exit=3))
        server.converge()
        eventually(lambda: "ended with 3" in shown(sandbox, "get"), "the end is seen")
        for words in (("status",), ("describe", WEB)):
            assert "panic: no database" in sandbox.run(*words).stdout
        # More people see these than may read logs.
        eventually(lambda: "ended with 3" in sandbox.status("shop/workload/web.yaml"), "the status branch shows it")
        written = shown(sandbox, "get", WEB, "-o", "json") + sandbox.status("shop/workload/web.yaml")
        assert ("ended with 3 (Error)" in written, "panic" in written) == (True, False)
        with closing(sqlite3.connect(sandbox.state / FILE)) as records:
            assert "panic" not in "\n".join(records.iterdump())


def check_views(sandbox: DaemonSandbox, server: FakeApiServer) -> None:
    """What people see of it."""
    assert "Healthy" in shown(sandbox, "get")
    described = shown(sandbox, "describe", WEB)
    assert "correct-horse" not in described
    pod = pods_of(server)[0]["metadata"]["name"]
    assert pod in shown(sandbox, "top", "--once")
    server.write_log("shop", pod, "a line of the log", container="main")
    eventually(lambda: "a line of the log" in shown(sandbox, "logs", WEB), "the log is shown")


def delete_web(sandbox: DaemonSandbox, server: FakeApiServer) -> None:
    """Wait for its end, and approve that if it is asked for."""
    eventually(lambda: "web" not in names(server, "Deployment") or approve(sandbox), "the deletion begins")
    eventually(lambda: f"{WEB}@here" not in sandbox.recorded(), "it is deleted")
    for kind in ("Deployment", "Service", "Secret", "Pod"):
        assert names(server, kind) == []


def approve(sandbox: DaemonSandbox) -> bool:
    """Approve what waits; whether anything did."""
    described = sandbox.run("describe", WEB).stdout
    if "reconciler approve" not in described:
        return False
    digest = described.split("reconciler approve", 1)[1].split()[0].strip("`;.,)")
    return sandbox.run("approve", digest).returncode == 0 and False
