"""Drift of objects on a cluster: what others change is noticed and mended, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.protocol import Result
from reconciler.model.key import Key
from reconciler.planning.plan import Action
from reconciler.reasons import Reason
from tests.engines.kubernetes.engine_kit import (
    BODY,
    NAME,
    SPACE,
    WEB,
    WRITES,
    ClusterHarness,
    change_body,
    engine_on_fake,
    make_step,
)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ClusterHarness]:
    with engine_on_fake(tmp_path) as harness:
        yield harness


def start_web(harness: ClusterHarness) -> None:
    assert harness.apply_web().result is Result.APPLIED
    harness.wait_for_health()


def has_drift(harness: ClusterHarness) -> bool:
    """Whether the workload is missing, or is not as it was applied."""
    seen = harness.see().get(WEB)
    return seen is None or seen.digest == ""


def assert_no_drift(harness: ClusterHarness, version: int = 1) -> None:
    """The digest is observed, and another step sends no change."""
    harness.catch_up()
    assert harness.see_web().digest == f"digest-{version}"
    harness.server.clear_requests()


def pod_template(harness: ClusterHarness) -> dict[str, Any]:
    template: dict[str, Any] = harness.server.object("Deployment", NAME, SPACE)["spec"]["template"]
    return template


def test_a_second_step_writes_nothing(harness: ClusterHarness) -> None:
    start_web(harness)
    assert_no_drift(harness)
    harness.apply_web()
    assert harness.writes() == []


def test_what_a_controller_counts_is_observed_in_no_budget(harness: ClusterHarness) -> None:
    """It counts there with each change of a pod, and nobody sees it."""
    start_web(harness)
    harness.catch_up()
    changed = harness.engine._signals._changed
    changed.clear()
    counts = {"status": {"currentHealthy": 7}}
    harness.server.patch("PodDisruptionBudget", NAME, SPACE, counts, subresource="status")
    harness.catch_up()
    assert changed == set()
    harness.server.patch("PodDisruptionBudget", NAME, SPACE, {"spec": {"maxUnavailable": 2}})
    harness.catch_up()
    assert changed == {Key.parse(WEB)}


def test_quantities_written_otherwise_are_no_drift(harness: ClusterHarness) -> None:
    start_web(harness)
    harness.apply_web(2, cpu="1", memory="1Gi")
    assert_no_drift(harness, 2)
    before = harness.server.object("Deployment", NAME, SPACE)["metadata"]["generation"]
    harness.apply_web(2, cpu="1", memory="1Gi")
    assert harness.writes() == []
    assert harness.server.object("Deployment", NAME, SPACE)["metadata"]["generation"] == before


def test_an_injected_sidecar_is_no_drift(harness: ClusterHarness) -> None:
    def inject(value: dict[str, Any]) -> None:
        value["metadata"].setdefault("annotations", {})["mesh.example/injected"] = "true"
        if value["kind"] == "Deployment":
            containers = value["spec"]["template"]["spec"]["containers"]
            if all(container["name"] != "mesh" for container in containers):
                containers.append({"name": "mesh", "image": "mesh:1"})

    harness.server.admission.mutate("*", inject)
    start_web(harness)
    assert_no_drift(harness)
    harness.apply_web()
    assert harness.writes() == []
    assert [container["name"] for container in pod_template(harness)["spec"]["containers"]] == ["main", "mesh"]


def scale_web(harness: ClusterHarness) -> dict[str, Any]:
    """Let an autoscaler set the replicas of ``web`` to 4; its manifest."""
    harness.server.install("PodMetrics")
    harness.begin_anew()
    body = change_body()
    body["spec"]["defaultOptions"]["autoscaling"] = {"metric": "cpu", "target": 50, "minScale": 1, "maxScale": 5}
    harness.apply(make_step(body))
    harness.wait_for_health()
    harness.server.scale("Deployment", NAME, SPACE, 4)
    harness.wait_for_health()
    return body


def count_replicas(harness: ClusterHarness) -> int:
    count: int = harness.server.object("Deployment", NAME, SPACE)["spec"]["replicas"]
    return count


def test_an_autoscaler_goes_before_the_manifest_fixes_the_replicas(harness: ClusterHarness) -> None:
    """It acts on every change, and would change the number once more."""
    scale_web(harness)
    harness.server.controllers.autoscalers.usage[f"{SPACE}/{NAME}"] = 1000
    assert harness.apply_web(2).result is Result.APPLIED
    assert count_replicas(harness) == 2
    assert harness.names("HorizontalPodAutoscaler") == []
    harness.wait_for_health()
    assert_no_drift(harness, 2)


def test_a_refused_manifest_costs_no_autoscaler(harness: ClusterHarness) -> None:
    scale_web(harness)
    harness.server.admission.deny("Deployment", "no room")
    assert harness.apply_web(2).result is Result.FAILED
    assert harness.names("HorizontalPodAutoscaler") == [NAME]


def test_what_an_autoscaler_did_last_is_undone_once_it_is_gone(harness: ClusterHarness) -> None:
    """Its controller may act on what it read before."""
    scale_web(harness)
    scaler = harness.server.object("HorizontalPodAutoscaler", NAME, SPACE)
    assert harness.apply_web(2).result is Result.APPLIED
    harness.server.scale("Deployment", NAME, SPACE, 4)
    harness.catch_up()
    assert has_drift(harness)
    assert harness.apply_web(2).result is Result.APPLIED
    assert count_replicas(harness) == 2
    harness.server.create({**scaler, "metadata": {"name": "of-others", "namespace": SPACE}})
    harness.server.scale("Deployment", NAME, SPACE, 4)
    harness.catch_up()
    assert harness.apply_web(2).reason is Reason.FIELD_CONFLICT, "an autoscaler of others is not fought"


@pytest.fixture
def keda(tmp_path: Path) -> Iterator[ClusterHarness]:
    """With the HTTP add-on of KEDA, which scales ``web`` to 4 replicas by its requests."""
    with engine_on_fake(tmp_path, gateway="gateways/public", keda_namespace="keda") as harness:
        harness.server.install("HTTPRoute", "HTTPScaledObject")
        harness.begin_anew()
        start_web(harness)
        body = change_body()
        body["spec"]["defaultOptions"]["autoscaling"] = {"metric": "rps", "target": 9, "minScale": 1, "maxScale": 5}
        body["spec"]["firewallConfig"] = {"external": {"inboundAllowCIDR": ["0.0.0.0/0"]}}
        harness.apply(make_step(body, 2))
        assert harness.names("HTTPScaledObject") == [NAME]
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
        harness.server.create(
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": KEDA_SCALER, "namespace": SPACE},
                "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5},
            }
        )
        harness.wait_for_health()
        harness.server.scale("Deployment", NAME, SPACE, 4)
        harness.wait_for_health()
        yield harness


KEDA_SCALER = f"keda-hpa-{NAME}"


@pytest.mark.parametrize("last", ["kube-controller-manager", "keda"])
def test_what_keda_scales_can_be_fixed(keda: ClusterHarness, last: str) -> None:
    """KEDA ends its autoscaler some time after the object of ours, and both set the number until then."""
    assert keda.apply_web(3).result is Result.APPLIED
    assert keda.names("HTTPScaledObject") == []
    assert count_replicas(keda) == 2
    change = {"spec": {"replicas": 4}}
    keda.server.patch("Deployment", NAME, SPACE, change, manager=last, subresource="scale")
    keda.catch_up()
    assert has_drift(keda)
    assert keda.apply_web(3).reason is Reason.FIELD_CONFLICT, "its autoscaler would set the number again"
    keda.server.delete("HorizontalPodAutoscaler", KEDA_SCALER, SPACE)
    assert keda.apply_web(3).result is Result.APPLIED
    assert count_replicas(keda) == 2
    keda.wait_for_health()
    assert_no_drift(keda, 3)


def test_replicas_that_no_autoscaler_has_set_yet_can_be_fixed(harness: ClusterHarness) -> None:
    """The autoscaler may go before it has set one."""
    start_web(harness)
    harness.server.install("PodMetrics")
    harness.begin_anew()
    body = change_body()
    body["spec"]["defaultOptions"]["autoscaling"] = {"metric": "cpu", "target": 50, "minScale": 1, "maxScale": 5}
    harness.apply(make_step(body, 2))
    harness.server.delete("HorizontalPodAutoscaler", NAME, SPACE)
    harness.catch_up()
    body["spec"]["defaultOptions"]["autoscaling"] = {"metric": "disabled", "minScale": 3, "maxScale": 3}
    assert harness.apply(make_step(body, 3))[WEB].result is Result.APPLIED
    assert count_replicas(harness) == 3


def test_an_autoscaler_that_moves_replicas_is_no_drift(harness: ClusterHarness) -> None:
    body = scale_web(harness)
    assert_no_drift(harness)
    harness.apply(make_step(body))
    assert harness.writes() == []
    assert count_replicas(harness) == 4


def test_empty_lists_and_maps_are_no_drift(harness: ClusterHarness) -> None:
    body = change_body(env=[], args=[], volumes=[])
    body["tags"] = {}
    harness.apply(make_step(body))
    harness.wait_for_health()
    assert_no_drift(harness)
    harness.apply(make_step(body))
    assert harness.writes() == []


def test_a_field_that_the_manifest_loses_goes_on_the_cluster(harness: ClusterHarness) -> None:
    assert harness.apply_web(command="serve", args=["--all"]).result is Result.APPLIED
    harness.wait_for_health()
    assert pod_template(harness)["spec"]["containers"][0]["args"] == ["--all"]
    harness.apply_web(2, args=None, env=[{"name": "B", "value": "2"}])
    container = pod_template(harness)["spec"]["containers"][0]
    assert "args" not in container
    assert "command" not in container
    assert "A" not in {entry["name"] for entry in container["env"]}
    harness.wait_for_health()
    assert_no_drift(harness, 2)


def test_a_workload_that_loses_its_ports_loses_its_service(harness: ClusterHarness) -> None:
    start_web(harness)
    assert NAME in harness.names("Service")
    harness.apply_web(2, ports=None)
    assert NAME not in harness.names("Service")
    harness.wait_for_health()
    assert_no_drift(harness, 2)
    harness.apply_web(3)
    assert NAME in harness.names("Service")


def test_a_headless_service_becomes_one_with_an_address_and_back(harness: ClusterHarness) -> None:
    stateful = change_body()
    stateful["spec"]["type"] = "stateful"
    for version, body in enumerate((BODY, stateful, BODY), 1):
        action = Action.UPDATE if version == 1 else Action.REPLACE
        harness.until(
            lambda body=body, version=version, action=action: (
                harness.apply(make_step(body, version, action))[WEB].result is Result.APPLIED
            )
        )
        harness.wait_for_health()
        headless = harness.server.object("Service", NAME, SPACE)["spec"].get("clusterIP") == "None"
        assert headless == (version == 2)
        assert_no_drift(harness, version)


def test_an_edited_image_is_a_conflict_that_names_the_manager(harness: ClusterHarness) -> None:
    start_web(harness)
    edited = deepcopy(harness.server.object("Deployment", NAME, SPACE))
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:evil"
    harness.server.update(edited)
    harness.until(lambda: has_drift(harness), "the drift is noticed")
    outcome = harness.apply_web()
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.FIELD_CONFLICT)
    assert "kubectl-edit" in outcome.message
    assert pod_template(harness)["spec"]["containers"][0]["image"] == "nginx:evil"


def test_a_conflict_is_forced_only_for_fields_of_the_settings(tmp_path: Path) -> None:
    patterns = ('.spec.template.spec.containers[name="main"].image',)
    with engine_on_fake(tmp_path, force_conflicts=patterns) as harness:
        start_web(harness)
        edited = deepcopy(harness.server.object("Deployment", NAME, SPACE))
        edited["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:evil"
        harness.server.update(edited)
        harness.until(lambda: has_drift(harness), "the drift is noticed")
        assert harness.apply_web().result is Result.APPLIED
        assert pod_template(harness)["spec"]["containers"][0]["image"] == "docker.io/library/nginx:1"
        harness.wait_for_health()
        assert_no_drift(harness)
        harness.server.patch("Deployment", NAME, SPACE, {"spec": {"minReadySeconds": 7, "replicas": 1}})
        harness.until(lambda: has_drift(harness), "the drift is noticed")
        assert harness.apply_web().reason is Reason.FIELD_CONFLICT


@pytest.mark.parametrize("kind", ["Service", "Deployment", "ServiceAccount", "NetworkPolicy", "Secret"])
def test_a_deleted_object_is_made_again(harness: ClusterHarness, kind: str) -> None:
    start_web(harness)
    name = next(name for name in harness.names(kind) if NAME in name)
    harness.server.delete(kind, name, SPACE)
    harness.until(lambda: has_drift(harness), "the drift is noticed")
    assert harness.apply_web().result is Result.APPLIED
    assert name in harness.names(kind)
    harness.wait_for_health()
    assert_no_drift(harness)


def test_a_deleted_policy_of_the_namespace_is_made_again(harness: ClusterHarness) -> None:
    start_web(harness)
    harness.server.delete("NetworkPolicy", "reconciler.default-deny", SPACE)
    harness.until(lambda: has_drift(harness), "the drift is noticed")
    harness.apply_web()
    assert "reconciler.default-deny" in harness.names("NetworkPolicy")
    assert_no_drift(harness)


def test_a_removed_annotation_is_set_again(harness: ClusterHarness) -> None:
    start_web(harness)
    harness.server.patch("Deployment", NAME, SPACE, {"metadata": {"annotations": {"reconciler.dev/key": None}}})
    harness.until(lambda: has_drift(harness), "the drift is noticed")
    assert harness.apply_web().result is Result.APPLIED
    harness.wait_for_health()
    assert_no_drift(harness)


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("Deployment", "reconciler.dev/instance"),
        ("Deployment", "reconciler.dev/location"),
        ("NetworkPolicy", "reconciler.dev/instance"),
        ("Service", "app.kubernetes.io/name"),
    ],
)
def test_a_removed_label_is_set_again(harness: ClusterHarness, kind: str, label: str) -> None:
    start_web(harness)
    name = next(name for name in harness.names(kind) if NAME in name)
    harness.server.patch(kind, name, SPACE, {"metadata": {"labels": {label: None}}})
    harness.until(lambda: has_drift(harness), "the drift is noticed")
    outcome = harness.apply_web()
    assert (outcome.result, outcome.message) == (Result.APPLIED, "")
    assert label in harness.server.object(kind, name, SPACE)["metadata"]["labels"]
    harness.wait_for_health()
    assert_no_drift(harness)


def test_a_change_of_one_object_is_one_request(harness: ClusterHarness) -> None:
    start_web(harness)
    harness.server.clear_requests()
    harness.apply_web(2, image="nginx:2")
    assert [(request.verb, request.resource) for request in harness.server.requests if request.verb in WRITES] == [
        ("patch", "deployments.apps")
    ]
    assert_no_drift(harness, 2)


def test_fields_that_are_not_as_remembered_are_corrected(harness: ClusterHarness) -> None:
    start_web(harness)
    fields = harness.engine._applier._trials._fields
    fields.update(dict.fromkeys(fields, "of another version of the server"))
    harness.apply_web(2, image="nginx:2")
    assert_no_drift(harness, 2)
    harness.apply_web(3, image="nginx:3")
    assert_no_drift(harness, 3)


def test_a_single_object_that_is_refused_is_not_changed(harness: ClusterHarness) -> None:
    start_web(harness)
    before = harness.server.object("Deployment", NAME, SPACE)
    harness.server.fail("patch deployments.apps", 422, -1, message="spec: Invalid value")
    outcome = harness.apply_web(2, image="nginx:2")
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.OBJECT_REFUSED)
    assert "Invalid value" in outcome.message
    assert harness.server.object("Deployment", NAME, SPACE) == before
