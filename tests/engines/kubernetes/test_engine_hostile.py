"""What a manifest cannot do on a cluster: leave its namespace, or use what belongs to the cluster or to others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.protocol import Result
from reconciler.model.key import Key, Kind
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Step
from reconciler.reasons import Reason
from tests.engines.kubernetes.engine_kit import SPACE, WEB, ClusterHarness, change_body, engine_on_fake, make_step

OURS = ("reconciler.dev/", "app.kubernetes.io/", "applyset.kubernetes.io/")
"""The beginnings of all labels and annotations that the engine sets, besides those that announce metrics."""
HOST = ("hostPath", "hostNetwork", "hostPID", "hostIPC", "hostPort", "privileged", "nodeName", "externalIPs")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ClusterHarness]:
    with engine_on_fake(tmp_path) as harness:
        harness.apply_web()
        yield harness


def hostile_bodies() -> dict[str, dict[str, Any]]:
    """Manifests that ask for more than they may have; those that the rules would refuse come by other ways too."""
    tags = {
        "reconciler.dev/instance": "other",
        "reconciler.dev/key": "workload/other/web",
        "kubernetes.io/ingress-class": "nginx",
        "nginx.ingress.kubernetes.io/configuration-snippet": "deny all;",
        "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
    }
    pod = {"hostNetwork": True, "hostPID": True, "serviceAccountName": "admin", "nodeName": "node-a"}
    bodies = {
        "tags": {**change_body(), "tags": tags},
        "metadata": {**change_body(), "metadata": {"namespace": "kube-system", "labels": tags, "annotations": tags}},
        "privileged": change_body(securityContext={"privileged": True}),
        "host path": change_body(volumes=[{"uri": "hostpath:///etc", "path": "/etc"}]),
        "file": change_body(volumes=[{"uri": "file:///etc", "path": "/host"}]),
        "host port": change_body(ports=[{"number": 8080, "hostPort": 80, "protocol": "http"}]),
    }
    bodies["pod"] = change_body()
    bodies["pod"]["spec"] |= pod
    return bodies


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All members of an object, with their paths."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield f"{path}.{name}", member
            yield from walk(member, f"{path}.{name}")
    elif isinstance(value, list):
        for member in value:
            yield from walk(member, f"{path}[]")


def list_applied(harness: ClusterHarness) -> list[dict[str, Any]]:
    """All objects that the engine has made."""
    kinds = ("Deployment", "Service", "Secret", "ServiceAccount", "NetworkPolicy", "ConfigMap", "Ingress", "Role")
    return [
        value
        for kind in kinds
        for value in harness.server.objects(kind)
        if any(entry["manager"] == "reconciler" for entry in value["metadata"].get("managedFields", ()))
    ]


@pytest.mark.parametrize("name", hostile_bodies())
def test_a_manifest_gets_nothing_of_the_cluster(harness: ClusterHarness, name: str) -> None:
    harness.apply(make_step(hostile_bodies()[name], 2))
    objects = list_applied(harness)
    assert len(objects) > 5
    for value in objects:
        metadata = value["metadata"]
        assert metadata["namespace"] == SPACE
        names = [*metadata["labels"], *metadata["annotations"]]
        assert [text for text in names if not text.startswith((*OURS, "deployment.kubernetes.io/revision"))] == []
        assert metadata["labels"]["reconciler.dev/instance"] == "acme"
        for path, member in walk({part: content for part, content in value.items() if part != "metadata"}):
            assert path.rpartition(".")[2] not in HOST or not member, path
            if path.endswith(".serviceAccountName"):
                assert member == "workload-web"
            if path.endswith(".automountServiceAccountToken"):
                assert member is False


@pytest.mark.parametrize("gvc", ["kube-system", "default"])
def test_a_gvc_gets_no_namespace_of_the_cluster(harness: ClusterHarness, gvc: str) -> None:
    body = b'{"kind": "gvc", "name": "%s", "tags": {"reconciler/adopt": "true"}}' % gvc.encode()
    key = Key(Kind.GVC, "", gvc)
    harness.records.applied.put(Record(key, "", "main", "digest", body, 1, "", Health.RECORDED))
    step = make_step(change_body())
    moved = Step(step.action, Key(Kind.WORKLOAD, gvc, "web"), "here", "kubernetes", 1, "digest-1", step.body)
    before = harness.server.object("Namespace", gvc)
    harness.apply(moved)
    assert harness.server.object("Namespace", gvc) == before
    assert harness.server.objects("Deployment", gvc) == []


def test_a_foreign_namespace_needs_the_tag_of_its_gvc(tmp_path: Path) -> None:
    with engine_on_fake(tmp_path) as harness:
        harness.server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        outcome = harness.apply_web()
        assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.FOREIGN_OBJECT)
        adopting = change_body()
        adopting["tags"] = {"reconciler/adopt": "true"}
        assert harness.apply(make_step(adopting))[WEB].reason is Reason.FOREIGN_OBJECT
        harness.record_gvc(tags={"reconciler/adopt": "true"})
        assert harness.apply_web().result is Result.APPLIED


@pytest.mark.parametrize("name", ["a" * 63, "x" + "-y" * 100, "a-0123456789abcdef"])
def test_names_at_their_limits_work(harness: ClusterHarness, name: str) -> None:
    body = {**change_body(), "name": name}
    step = make_step(body)
    outcome = harness.apply(step)[str(step.key)]
    assert outcome.result is Result.APPLIED, outcome.message
    harness.wait_for_health()
    assert harness.see()[str(step.key)].digest == "digest-1"
    harness.server.clear_requests()
    harness.apply(step)
    assert harness.writes() == []
