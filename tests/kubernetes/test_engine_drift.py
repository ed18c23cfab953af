"""What is no drift on a real cluster: what webhooks add, what an autoscaler decides, other spellings of the same."""

from __future__ import annotations

import time

import pytest

from reconciler.engines.protocol import Result
from tests.engines.kubernetes.engine_kit import WEB, change_body, make_step
from tests.kubernetes.cluster.client import Object
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.cluster.metrics import register_metrics
from tests.kubernetes.cluster.webhooks import describe_webhook
from tests.kubernetes.real_harness import RealHarness

pytestmark = pytest.mark.cluster


def test_what_a_webhook_adds_is_no_drift(harness: RealHarness, kubelet: Kubelet) -> None:
    """As a service mesh does: a container and annotations."""
    harness.start_web()
    name = f"mesh-{harness.cluster.minor.replace('.', '-')}"
    kubelet.webhooks[name] = inject
    harness.cluster.apply(
        describe_webhook("Mutating", name, kubelet.port, harness.space, ["deployments", "services", "configmaps"])
    )
    try:
        harness.kubectl("create", "configmap", "probe")
        harness.until(lambda: has_mark(harness), "the webhook is asked")
        assert harness.apply_web(2, image="nginx:2").result is Result.APPLIED
        names = harness.kubectl("get", "deployment", "web", "--output", "jsonpath={..containers[*].name}")
        assert names.split() == ["main", "mesh"]
        harness.wait_for_health()
        harness.until(lambda: not list_endings(harness), "the former pods have ended")
        harness.assert_no_drift(2)
        before = harness.versions()
        harness.begin_anew()
        harness.assert_no_drift(2)
        harness.apply_web(2, image="nginx:2")
        assert harness.versions() == before
    finally:
        harness.cluster.kubectl("delete", "mutatingwebhookconfiguration", f"{name}.test.reconciler")


def inject(request: Object) -> list[Object]:
    """Operations on an object that is about to be stored."""
    metadata = request["object"]["metadata"]
    operations: list[Object] = []
    if "annotations" not in metadata:
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    operations.append({"op": "add", "path": "/metadata/annotations/mesh", "value": "yes"})
    if request["kind"]["kind"] == "Deployment":
        containers = request["object"]["spec"]["template"]["spec"]["containers"]
        if all(container["name"] != "mesh" for container in containers):
            container = {"name": "mesh", "image": "example.test/mesh:1"}
            operations.append({"op": "add", "path": "/spec/template/spec/containers/-", "value": container})
    return operations


def list_endings(harness: RealHarness) -> list[str]:
    """Since when the pods that end do so."""
    return harness.kubectl("get", "pods", "--output", "jsonpath={..deletionTimestamp}").split()


def has_mark(harness: RealHarness) -> bool:
    """Whether the webhook has changed an object since it was configured."""
    harness.kubectl("label", "configmap", "probe", f"at=n{time.monotonic_ns()}", "--overwrite")
    return harness.kubectl("get", "configmap", "probe", "--output", "jsonpath={.metadata.annotations.mesh}") == "yes"


def test_replicas_of_an_autoscaler_are_no_drift(harness: RealHarness, kubelet: Kubelet) -> None:
    kubelet.usage[f"{harness.space}/*"] = ("2", "64Mi")
    harness.cluster.apply(*register_metrics(kubelet.port))
    metrics = "/apis/metrics.k8s.io/v1beta1"
    harness.cluster.wait_for(lambda: harness.cluster.api.get(metrics).is_success, "metrics are served", seconds=90.0)
    harness.begin_anew()
    body = change_body()
    body["spec"]["defaultOptions"]["autoscaling"] = {"metric": "cpu", "target": 50, "minScale": 1, "maxScale": 3}
    assert harness.apply(make_step(body))[WEB].result is Result.APPLIED
    harness.until(lambda: read_replicas(harness) == "3", "the autoscaler adds replicas")
    harness.wait_for_health()
    harness.assert_no_drift()
    harness.apply(make_step(body))
    harness.begin_anew()
    harness.assert_no_drift()
    assert read_replicas(harness) == "3"


def read_replicas(harness: RealHarness) -> str:
    return harness.kubectl("get", "deployment", "web", "--output", "jsonpath={.spec.replicas}")


def test_other_spellings_are_no_drift(harness: RealHarness) -> None:
    """Quantities, and lists and maps that are empty or missing."""
    body = change_body(env=[], args=[], volumes=[])
    body["tags"] = {}
    assert harness.apply(make_step(body))[WEB].result is Result.APPLIED
    harness.wait_for_health()
    harness.assert_no_drift()
    before = read_generation(harness)
    assert harness.apply_web(2, cpu="1", memory="1Gi", env=None, args=None, volumes=None).result is Result.APPLIED
    harness.wait_for_health()
    harness.assert_no_drift(2)
    assert read_generation(harness) == str(int(before) + 1), "the version is another one, and nothing else is"
    harness.begin_anew()
    harness.apply_web(2, cpu="1000m", memory="1024Mi", env=None)
    assert read_generation(harness) == str(int(before) + 1)


def read_generation(harness: RealHarness) -> str:
    return harness.kubectl("get", "deployment", "web", "--output", "jsonpath={.metadata.generation}")
