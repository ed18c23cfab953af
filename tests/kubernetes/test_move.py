"""A location moves from this host to a cluster and back: what is left ends, and what is new runs."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.support.command_sandbox import DB
from tests.support.host_sandbox import host_sandbox, served
from tests.support.sandbox import eventually

HEALTHY_AFTER = {"readinessProbe": None, "ports": None, "command": "sleep", "args": ["100000"]}
"""A workload that is healthy at both engines, with or without a network."""


def list_pods(server: FakeApiServer) -> list[str]:
    """Names of pods of the shop."""
    return [pod["metadata"]["name"] for pod in server.objects("Pod", "shop")]


def list_accounts(server: FakeApiServer) -> list[str]:
    """Names of the accounts of workloads of the shop."""
    names = [account["metadata"]["name"] for account in server.objects("ServiceAccount", "shop")]
    return [name for name in names if name.startswith("workload-")]


def test_a_location_moves_to_a_cluster_and_back(tmp_path: Path) -> None:
    with (
        fake_api_server(tmp_path / "cluster") as server,
        host_sandbox(tmp_path / "shop", {"shop/web.yaml": served(**HEALTHY_AFTER)}) as sandbox,
        sandbox.daemon(),
    ):
        server.run_controllers()
        cluster = {"kubeconfig": str(server.kubeconfig)}
        eventually(lambda: len(sandbox.programs()) == 2 and sandbox.healthy(), "it runs on the host")
        sandbox.configure(locations={"here": {"engine": "kubernetes", "cluster": cluster}})
        eventually(lambda: len(list_pods(server)) == 2, "it runs on the cluster")
        eventually(lambda: not sandbox.programs(), "the host ends its replicas")
        eventually(sandbox.healthy, "it is healthy on the cluster")
        sandbox.configure(locations={"here": {"engine": "host", "cluster": cluster}})
        eventually(lambda: len(sandbox.programs()) == 2 and sandbox.healthy(), "it runs on the host again")
        eventually(lambda: not list_pods(server), "the cluster ends its pods")
        eventually(lambda: not list_accounts(server), "what pods needed goes after them")


def test_a_cluster_that_a_location_leaves_keeps_the_volumes(tmp_path: Path) -> None:
    files = {"shop/web.yaml": served(**HEALTHY_AFTER), "shop/db.yaml": DB}
    with (
        fake_api_server(tmp_path / "cluster") as server,
        host_sandbox(tmp_path / "shop", files, images={"registry": "registry.example.com"}) as sandbox,
    ):
        server.run_controllers()
        cluster = {"kubeconfig": str(server.kubeconfig)}
        sandbox.configure(locations={"here": {"engine": "kubernetes", "cluster": cluster}})
        with sandbox.daemon():
            eventually(lambda: len(list_pods(server)) == 3, "it runs on the cluster")
            claims = [claim["metadata"]["uid"] for claim in server.objects("PersistentVolumeClaim", "shop")]
            sandbox.configure(locations={"here": {"engine": "recorded", "cluster": cluster}})
            eventually(lambda: not list_pods(server), "the cluster ends its pods")
            eventually(lambda: not list_accounts(server), "what pods needed goes after them")
    assert claims
    assert [claim["metadata"]["uid"] for claim in server.objects("PersistentVolumeClaim", "shop")] == claims
