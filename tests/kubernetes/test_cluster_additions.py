"""What a cluster of the tests can have besides: autoscaling by usage, webhooks, kinds of other projects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.cluster.client import Object
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.definitions import GATEWAY, KEDA, KNATIVE, SNAPSHOTS
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.cluster.metrics import register_metrics
from tests.kubernetes.cluster.objects import STORAGE_CLASS, describe_pod, describe_template, describe_workload
from tests.kubernetes.cluster.webhooks import Refused, describe_webhook

pytestmark = pytest.mark.cluster


def describe_config(namespace: str, name: str, **data: str) -> Object:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def test_an_autoscaler_follows_what_pods_use(cluster: Cluster, kubelet: Kubelet, namespace: str) -> None:
    template = describe_template("web")
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    target = {"type": "Utilization", "averageUtilization": 50}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }
    kubelet.usage[f"{namespace}/*"] = ("100m", "64Mi")
    cluster.apply(
        *register_metrics(kubelet.port), describe_workload("Deployment", namespace, "web", template), autoscaler
    )
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    cluster.wait_for(lambda: cluster.api.get(path).json()["spec"]["replicas"] == 3, "three replicas", seconds=90.0)


def test_a_mutating_webhook_changes_what_is_stored(cluster: Cluster, kubelet: Kubelet, namespace: str) -> None:
    name = f"mutate-{cluster.minor.replace('.', '-')}"
    kubelet.webhooks[name] = lambda request: [{"op": "add", "path": "/data/injected", "value": "yes"}]
    cluster.apply(describe_webhook("Mutating", name, kubelet.port, namespace, ["configmaps"]))
    path = f"/api/v1/namespaces/{namespace}/configmaps/settings"

    def inject() -> Any:
        cluster.apply(describe_config(namespace, "settings", own="1"))
        return cluster.api.get(path).json()["data"].get("injected") == "yes"

    cluster.wait_for(inject, "the webhook is asked", seconds=90.0)


def test_a_validating_webhook_refuses_and_one_that_is_slow_fails(
    cluster: Cluster, kubelet: Kubelet, namespace: str
) -> None:
    name = f"refuse-{cluster.minor.replace('.', '-')}"

    def refuse(request: Object) -> list[Object]:
        raise Refused("only on Mondays")

    kubelet.webhooks[name] = refuse
    cluster.apply(describe_webhook("Validating", name, kubelet.port, namespace, ["configmaps"]))
    path = f"/api/v1/namespaces/{namespace}/configmaps"

    def create(name: str) -> Object:
        answer: Object = cluster.api.post(path, json=describe_config(namespace, name)).json()
        cluster.api.delete(f"{path}/{name}")
        return answer

    cluster.wait_for(lambda: "only on Mondays" in create("a").get("message", ""), "a refusal", seconds=90.0)
    kubelet.webhook_delays[name] = 2.0
    assert create("b")["reason"] in ("InternalError", "Timeout")


def test_snapshots_become_ready(cluster: Cluster, namespace: str) -> None:
    cluster.install(*SNAPSHOTS)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "test",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    snapshot = {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": "before", "namespace": namespace},
        "spec": {"source": {"persistentVolumeClaimName": "data"}},
    }
    cluster.apply(STORAGE_CLASS, claim, describe_pod(namespace, "user", volumes=[volume]), snapshot)
    path = cluster.path_of(snapshot)
    ready = cluster.wait_for(lambda: cluster.api.get(path).json().get("status"), "a status", seconds=90.0)
    assert (ready["readyToUse"], ready["restoreSize"]) == (True, "1Gi")


def test_kinds_of_other_projects_can_be_installed(cluster: Cluster) -> None:
    cluster.install(*GATEWAY, *KNATIVE, *KEDA)
    assert "httproutes.gateway.networking.k8s.io" in cluster.kubectl("api-resources", "-o", "name").split()
