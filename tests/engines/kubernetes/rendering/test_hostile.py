"""What no manifest can get from a cluster: another namespace, a part of its node, a label or annotation of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.engines.kubernetes.rendering import names
from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures, ClusterOptions
from reconciler.engines.kubernetes.rendering.workload import render_workload
from tests.engines.kubernetes.rendering.kit import Setup, decode, workload_inputs
from tests.engines.kubernetes.rendering.test_cases import FOLDERS, result_of

NEVER = frozenset(
    {
        "add",
        "configMap",
        "csi",
        "externalIPs",
        "externalName",
        "finalizers",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPath",
        "hostPort",
        "nfs",
        "nodeName",
        "nodeSelector",
        "ownerReferences",
        "priorityClassName",
        "privileged",
        "procMount",
        "projected",
        "roleRef",
        "runtimeClassName",
        "shareProcessNamespace",
        "tolerations",
    }
)
"""Fields with which a pod would get more than its manifest may have."""
LABELS = frozenset(
    {
        names.MANAGED_BY,
        names.NAME,
        names.INSTANCE,
        names.ORG,
        names.GVC,
        names.LOCATION,
        names.WORKLOAD,
        names.VOLUMESET,
        names.VERSION,
        names.PART_OF,
        names.APPLYSET_ID,
        "reconciler.dev/provider",
        "reconciler.dev/region",
        "networking.knative.dev/visibility",
    }
)
ANNOTATIONS = frozenset(
    {
        names.KEY,
        names.SOURCE,
        names.DIGEST,
        names.VERSION,
        names.RESTART,
        names.APPLYSET_TOOL,
        names.APPLYSET_KINDS,
        "kubectl.kubernetes.io/default-container",
        "prometheus.io/scrape",
        "prometheus.io/port",
        "prometheus.io/path",
        "cert-manager.io/cluster-issuer",
    }
)
OF_KNATIVE = "autoscaling.knative.dev/"
HOSTILE = """
kind: workload
name: default
gvc: shop
description: "$(PLATFORM_TOKEN)"
tags:
  reconciler.dev/instance: another
  kubernetes.io/ingress.class: mine
  prometheus.io/scrape: "true"
spec:
  type: standard
  identityLink: //identity/web
  containers:
    - name: main
      image: registry.example/web:7
      command: /var/run/secrets/kubernetes.io/serviceaccount/token
      ports: [{number: 8080}]
      metrics: {port: 9100, path: "/metrics?reconciler.dev/key:mine"}
      env: [{name: KUBERNETES_SERVICE_HOST, value: 192.0.2.1}, {name: "reconciler.dev", value: "$(POD_IP)"}]
      volumes:
        - {uri: scratch://etc, path: /var/run/secrets/kubernetes.io/serviceaccount}
        - {uri: platform://secret/odd, path: /etc/odd}
  firewallConfig:
    external: {inboundAllowCIDR: [0.0.0.0/0], outboundAllowCIDR: [0.0.0.0/0, 169.254.169.254/32]}
    internal: {inboundAllowType: workload-list, inboundAllowWorkload: [/org/acme/gvc/kube-system/workload/coredns]}
---
kind: workload
name: coredns
gvc: kube-system
spec: {type: standard, containers: [{name: main, image: registry.example/dns:1}]}
---
kind: secret
name: odd
type: dictionary
data: {..odd: one, "...": two, -x: three, _: four}
"""


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """All fields of an object with their values, at any depth."""
    for name, member in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(name, str):
            yield name, member
        if isinstance(member, dict | list):
            yield from members(member)


def check_object(kube_object: dict[str, Any], namespace: str) -> None:
    if kube_object["kind"] != "Namespace":
        assert kube_object["metadata"]["namespace"] == namespace
    for name, member in members(kube_object):
        assert name not in NEVER
        if name == "labels":
            assert member.keys() <= LABELS
        if name == "annotations":
            assert {text for text in member if not text.startswith(OF_KNATIVE)} <= ANNOTATIONS
        if name == "serviceAccountName":
            assert member.startswith("workload-")
        if name in ("secretName", "secretKeyRef", "imagePullSecrets"):
            assert "default-token" not in str(member)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_case_has_more_than_a_workload_may_have(folder: Any) -> None:
    for kube_object in result_of(folder).get("objects", []):
        check_object(kube_object, "gco3rjus0h3q6")


@pytest.mark.parametrize("features", [ClusterFeatures(), ClusterFeatures(True, True, True, True, True)])
def test_a_hostile_manifest_gets_no_more(features: ClusterFeatures) -> None:
    options = ClusterOptions(gateway="public", gateway_namespace="gateways", ingress_class="public")
    inputs = workload_inputs(decode(HOSTILE), Setup(features, options))
    objects = render_workload(inputs)
    for kube_object in objects:
        check_object(kube_object, inputs.namespace)
    (pod,) = (one["spec"]["template"] for one in objects if one["kind"] == "Deployment")
    assert pod["spec"]["serviceAccountName"] == "workload-default"
    assert pod["spec"]["automountServiceAccountToken"] is False
    (policy,) = (one["spec"] for one in objects if one["kind"] == "NetworkPolicy")
    blocks = [peer["ipBlock"] for rule in policy["egress"] for peer in rule["to"] if "ipBlock" in peer]
    assert [block["cidr"] for block in blocks] == ["0.0.0.0/0"]
    assert "169.254.0.0/16" in blocks[0]["except"]
    peers = [peer for rule in policy["ingress"] for peer in rule["from"] if "podSelector" in peer]
    # A GVC is found by labels of ours: another namespace has none of them, whatever it is called.
    assert [peer["namespaceSelector"]["matchLabels"] for peer in peers] == [
        {names.ORG: "acme", names.GVC: "kube-system"}
    ]
