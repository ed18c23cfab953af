"""Kinds that other projects add to a cluster, without their controllers: any content is valid."""

from __future__ import annotations

from typing import NamedTuple

from tests.kubernetes.cluster.client import Object


class Addition(NamedTuple):
    """A kind that a cluster lacks by itself."""

    group: str
    version: str
    plural: str
    kind: str
    scope: str = "Namespaced"


SNAPSHOTS = (
    Addition("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot"),
    Addition("snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", "VolumeSnapshotClass", "Cluster"),
    Addition("snapshot.storage.k8s.io", "v1", "volumesnapshotcontents", "VolumeSnapshotContent", "Cluster"),
)
"""The kubelets' provisioner lets snapshots become ready."""
GATEWAY = (
    Addition("gateway.networking.k8s.io", "v1", "gatewayclasses", "GatewayClass", "Cluster"),
    Addition("gateway.networking.k8s.io", "v1", "gateways", "Gateway"),
    Addition("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute"),
)
KNATIVE = (Addition("serving.knative.dev", "v1", "services", "Service"),)
KEDA = (
    Addition("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject"),
    Addition("http.keda.sh", "v1alpha1", "httpscaledobjects", "HTTPScaledObject"),
)


def describe_definition(addition: Addition) -> Object:
    """The CustomResourceDefinition of ``addition``."""
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": addition.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open_schema, "status": open_schema}}},
    }
    metadata: Object = {"name": f"{addition.plural}.{addition.group}"}
    if addition.group.endswith("k8s.io"):
        # The server asks for it where a group is one of the community's own.
        metadata["annotations"] = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements"}
    names = {"kind": addition.kind, "plural": addition.plural, "singular": addition.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {"group": addition.group, "scope": addition.scope, "names": names, "versions": [version]},
    }
