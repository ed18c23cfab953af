"""Fields that the API server never changes: a change of one is found, and what the server adds is none."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from reconciler.engines.kubernetes.immutable_fields import list_immutable_changes

CLAIM = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "10Gi"}}}}
STATEFUL_SET: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "spec": {
        "replicas": 1,
        "serviceName": "db",
        "selector": {"matchLabels": {"a": "b"}},
        "podManagementPolicy": "Parallel",
        "volumeClaimTemplates": [CLAIM],
    },
}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b", "c": "d"}}},
}
SERVICE: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None"}}


def change(item: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """``item`` with other fields of its spec; None removes one."""
    other = deepcopy(item)
    other["spec"] = {name: value for name, value in {**other["spec"], **spec}.items() if value is not None}
    return other


def with_size(size: str) -> list[dict[str, Any]]:
    """The template of a claim with another size, as a server stores it."""
    spec = {"resources": {"requests": {"storage": size}}, "volumeMode": "Filesystem"}
    return [{"kind": "PersistentVolumeClaim", **CLAIM, "spec": spec, "status": {"phase": "Pending"}}]


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        (STATEFUL_SET, change(STATEFUL_SET, replicas=4), []),
        (STATEFUL_SET, change(STATEFUL_SET, serviceName="other"), ["spec.serviceName"]),
        (STATEFUL_SET, change(STATEFUL_SET, podManagementPolicy=None), ["spec.podManagementPolicy"]),
        (change(STATEFUL_SET, podManagementPolicy="OrderedReady"), change(STATEFUL_SET, podManagementPolicy=None), []),
        (STATEFUL_SET, change(STATEFUL_SET, volumeClaimTemplates=None), ["spec.volumeClaimTemplates"]),
        (change(STATEFUL_SET, volumeClaimTemplates=with_size("10Gi")), STATEFUL_SET, []),
        (change(STATEFUL_SET, volumeClaimTemplates=with_size("10240Mi")), STATEFUL_SET, []),
        (change(STATEFUL_SET, volumeClaimTemplates=with_size("20Gi")), STATEFUL_SET, ["spec.volumeClaimTemplates"]),
        (DEPLOYMENT, change(DEPLOYMENT, selector={"matchLabels": {"a": "b"}}), ["spec.selector"]),
        (DEPLOYMENT, change(DEPLOYMENT, strategy={"type": "Recreate"}), []),
        (SERVICE, change(SERVICE, clusterIP="10.0.0.1"), ["spec.clusterIP"]),
        (SERVICE, change(SERVICE, clusterIP=None), []),
        (change(SERVICE, clusterIP="10.0.0.1"), SERVICE, ["spec.clusterIP"]),
    ],
)
def test_a_change_of_an_immutable_field_is_found(
    before: dict[str, Any], after: dict[str, Any], paths: list[str]
) -> None:
    assert list_immutable_changes(before, after) == paths
