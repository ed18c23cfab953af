"""The manifests under examples/kubernetes run the daemon in a real cluster, with the rights that it needs only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.kubernetes.access import list_rights, make_reviews
from tests.docs.shell import typed
from tests.kubernetes.cluster.build import build_program
from tests.kubernetes.cluster.client import Object
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.cluster.objects import STORAGE_CLASS
from tests.kubernetes.test_guide import read_session
from tests.project.tree import ROOT

pytestmark = pytest.mark.cluster

KUBECTL = """#!/bin/sh
exec {program} kubectl "$@"
"""
EXAMPLE = str(ROOT / "examples" / "kubernetes")
NAMESPACE, ACCOUNT = "reconciler", "reconciler"
POD = f"/api/v1/namespaces/{NAMESPACE}/pods/reconciler-0"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
FORBIDDEN = (
    ("list", "", "nodes"),
    ("create", "", "pods"),
    ("delete", "", "namespaces"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
    ("impersonate", "", "users"),
    ("create", "", "serviceaccounts/token"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions"),
)
"""Rights by which an account gets more of them, or that nothing here needs."""


@pytest.fixture
def deployed(cluster: Cluster, kubelet: Kubelet) -> Iterator[Cluster]:
    """A cluster with the example applied, and with a class for its claim."""
    assert kubelet
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    cluster.apply({**STORAGE_CLASS, "metadata": {"name": "default", "annotations": default}})
    cluster.kubectl("apply", "-k", EXAMPLE)
    yield cluster
    cluster.kubectl("delete", "-k", EXAMPLE, "--wait=false")
    cluster.kubectl("delete", "storageclass", "default")
    cluster.wait_for(lambda: cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}").status_code == 404, seconds=60.0)


def ask(cluster: Cluster, token: str, attributes: Object) -> bool:
    """Whether the server permits the account with ``token`` what ``attributes`` describe."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    with cluster.client_of(cluster.kubeconfig_of_token("nobody", "")) as client:
        answer = client.post(REVIEWS, json=review, headers={"Authorization": f"Bearer {token}"})
    allowed: bool = answer.raise_for_status().json()["status"].get("allowed", False)
    return allowed


def test_the_pod_of_the_daemon_runs(deployed: Cluster) -> None:
    token = ["--from-literal", "token=secret"]
    deployed.kubectl("create", "secret", "generic", "reconciler-git", "--namespace", NAMESPACE, *token)

    def read() -> Any:
        answer = deployed.api.get(POD)
        return answer.json() if answer.is_success and answer.json()["status"].get("phase") == "Running" else None

    pod = deployed.wait_for(read, "the pod of the daemon runs", seconds=90.0)
    assert pod["spec"]["serviceAccountName"] == ACCOUNT
    again = deployed.kubectl("apply", "-k", EXAMPLE, "--dry-run=server").splitlines()
    assert len(again) == 6
    assert [line for line in again if "created" in line] == []


def test_the_account_of_the_daemon_has_every_right_that_it_uses_and_no_more(deployed: Cluster) -> None:
    deployed.wait_for(lambda: deployed.api.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}").is_success)
    token = deployed.token_of(NAMESPACE, ACCOUNT)
    # The server learns of a role by a watch, a moment later.
    namespaces = {"verb": "list", "group": "", "resource": "namespaces"}
    deployed.wait_for(lambda: ask(deployed, token, namespaces), seconds=90.0)
    missing = [
        f"{verb} {right}"
        for right, verb, review in make_reviews(list_rights())
        if not ask(deployed, token, review["spec"]["resourceAttributes"])
    ]
    assert missing == []
    surplus = []
    for verb, group, resource in FORBIDDEN:
        name, _, part = resource.partition("/")
        if ask(deployed, token, {"verb": verb, "group": group, "resource": name, "subresource": part}):
            surplus.append(f"{verb} {resource}")
    assert surplus == []


def test_the_first_session_of_the_guide_runs_pods(cluster: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    assert kubelet
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "kubectl").write_text(KUBECTL.format(program=build_program(cluster.minor).path))
    (tools / "kubectl").chmod(0o755)
    path = f"{tools}:{Path(sys.executable).parent}:/usr/bin:/bin"
    printed = typed(read_session(), tmp_path, tmp_path, PATH=path, KUBECONFIG=str(cluster.kubeconfig))
    cluster.kubectl("delete", "namespace", "shop", "--wait=false")
    assert "deployment.apps/web   2/2" in printed
    assert "service/web" in printed
