"""What `reconciler eject` writes is for kubectl, on a real cluster: it takes over all, and restarts nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.contract import SPEC
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.rights import give_rights
from tests.support.sandbox import DaemonSandbox

pytestmark = pytest.mark.cluster

GVC = {"kind": "gvc", "name": "ejected", "spec": {"staticPlacement": {"locationLinks": ["//location/here"]}}}
KINDS = "deployments,services,secrets,serviceaccounts,networkpolicies,poddisruptionbudgets,configmaps,pods"


@pytest.fixture
def sandbox(cluster: Cluster, kubelet: Kubelet, tmp_path: Path) -> Iterator[DaemonSandbox]:
    """A repository with a workload of each kind, and settings that lead to the cluster."""
    assert kubelet
    bound = {"kubeconfig": str(give_rights(cluster))}
    files = {"gvc.yaml": json.dumps(GVC), "web.yaml": describe("web"), "db.yaml": describe("db", type="stateful")}
    yield DaemonSandbox(tmp_path / "site", files, locations={"here": {"engine": "kubernetes", "cluster": bound}})
    cluster.api.delete("/api/v1/namespaces/ejected")


def describe(name: str, **spec: Any) -> str:
    """A workload."""
    body = copy.deepcopy(SPEC)
    body |= {"name": name, "gvc": "ejected"}
    body["spec"] |= spec
    return json.dumps(body)


def list_versions(cluster: Cluster) -> dict[str, str]:
    """The uid and the generation of each object; no ConfigMap of the cluster itself."""
    form = "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid}/{.metadata.generation}{'\\n'}{end}"
    lines = cluster.kubectl("--namespace", "ejected", "get", KINDS, "--output", form).splitlines()
    return {name: version for name, version in (line.split() for line in lines) if "kube-root-ca" not in name}


def test_kubectl_applies_what_was_ejected_and_restarts_nothing(
    sandbox: DaemonSandbox, cluster: Cluster, tmp_path: Path
) -> None:
    assert sandbox.run("apply").returncode == 0
    pods = ["--namespace", "ejected", "get", "pods", "--output", "jsonpath={.items[*].status.phase}"]
    cluster.wait_for(lambda: set(cluster.kubectl(*pods).split()) == {"Running"}, "the pods run")
    directory = tmp_path / "out"
    ejected = sandbox.run("eject", str(directory), "--secrets")
    assert ejected.returncode == 0, ejected.stderr
    before = list_versions(cluster)
    applied = cluster.kubectl("apply", "--server-side", "--kustomize", str(directory)).splitlines()
    assert len(applied) >= 10
    assert all(line.endswith("serverside-applied") for line in applied)
    assert list_versions(cluster) == before
    checked = sandbox.run("drift", "--output", "name")
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr
    cluster.kubectl("delete", "namespace", "ejected")
    cluster.kubectl("apply", "--server-side", "--kustomize", str(directory))
    cluster.wait_for(lambda: set(cluster.kubectl(*pods).split()) == {"Running"}, "the pods run without the daemon")
    assert {name for name in list_versions(cluster) if not name.startswith("Pod/")} == {
        name for name in before if not name.startswith("Pod/")
    }
