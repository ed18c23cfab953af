"""What an endpoint writes into an object, and what it leaves as it is."""

from __future__ import annotations

from tests.kubernetes.fake import fields
from tests.kubernetes.fake.errors import Object, Resource
from tests.kubernetes.fake.managers import Tracker
from tests.kubernetes.fake.types import node_of

WITHOUT_GENERATION = frozenset(
    {
        "ConfigMap",
        "Event",
        "LimitRange",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "ResourceQuota",
        "Secret",
        "Service",
        "ServiceAccount",
        "StorageClass",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "Lease",
        "Node",
    }
)
FIXED_METADATA = (
    "uid",
    "creationTimestamp",
    "name",
    "namespace",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
"""Metadata that no write changes."""
TEMPLATE = {"metadata": {}, "spec": {"containers": None}}
SKELETONS: dict[str, Object] = {
    "Deployment": {"spec": {"strategy": {}, "template": TEMPLATE}},
    "StatefulSet": {"spec": {"updateStrategy": {}, "template": TEMPLATE}},
    "DaemonSet": {"spec": {"updateStrategy": {}, "template": TEMPLATE}},
    "ReplicaSet": {"spec": {"template": TEMPLATE}},
    "Job": {"spec": {"template": TEMPLATE}},
    "CronJob": {"spec": {"jobTemplate": {"metadata": {}, "spec": {"template": TEMPLATE}}}},
    "Pod": {"spec": {"containers": None}},
    "PersistentVolumeClaim": {"spec": {"resources": {}}},
    "HorizontalPodAutoscaler": {"spec": {"scaleTargetRef": {}}},
    "NetworkPolicy": {"spec": {"podSelector": {}}},
}
"""Kind → the parts of an object that are there before anything is set."""


def restrict_change(resource: Resource, subresource: str, live: Object, new: Object) -> Object:
    """``new`` with only what this endpoint writes."""
    new = {**new, "metadata": dict(new["metadata"])}
    if subresource == "status":
        changed = {**live, "metadata": dict(live["metadata"])}
        for name, source in (("status", new), ("managedFields", new["metadata"])):
            target = changed if name == "status" else changed["metadata"]
            target.pop(name, None)
            if name in source:
                target[name] = source[name]
        return changed
    for name in FIXED_METADATA:
        new["metadata"].pop(name, None)
        if name in live["metadata"]:
            new["metadata"][name] = live["metadata"][name]
    new["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    if resource.status:
        new.pop("status", None)
        if "status" in live:
            new["status"] = live["status"]
    if resource.kind == "Namespace":
        new.setdefault("spec", {})["finalizers"] = live.get("spec", {}).get("finalizers", [])
    return new


def tracker_of(resource: Resource, subresource: str) -> Tracker:
    """The tracker of an endpoint."""
    node = node_of(resource.api_version, resource.kind)
    skeleton = SKELETONS.get(resource.kind, {}) if not resource.custom else {}
    skeleton = {"metadata": {}, "spec": {}, "status": {}} | skeleton if not resource.custom else {"metadata": {}}
    reset: fields.Paths = set()
    if subresource == "status":
        reset = {("f:spec",), ("f:metadata", "f:labels")}
    elif resource.status:
        reset = {("f:status",)}
    return Tracker(node, reset, skeleton)


def scale_of(value: Object) -> Object:
    """The Scale of a workload."""
    metadata = {
        name: value["metadata"][name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if name in value["metadata"]
    }
    selector = (value["spec"].get("selector") or {}).get("matchLabels") or {}
    status = {"replicas": (value.get("status") or {}).get("replicas", 0)}
    status["selector"] = ",".join(f"{key}={label}" for key, label in sorted(selector.items()))
    body = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata}
    return body | {"spec": {"replicas": value["spec"].get("replicas", 0)}, "status": status}


def content_of(value: Object) -> Object:
    """What a change of the generation is about."""
    return {key: entry for key, entry in value.items() if key not in ("metadata", "status")}


def finish_new(resource: Resource, value: Object) -> None:
    """Write into a new object what no manager owns."""
    metadata = value["metadata"]
    if resource.kind == "Namespace":
        value.setdefault("spec", {})["finalizers"] = ["kubernetes"]
    if resource.kind == "PersistentVolumeClaim":
        metadata["finalizers"] = [*(metadata.get("finalizers") or []), "kubernetes.io/pvc-protection"]
    if resource.kind == "Job":
        _label_job(value)


def _label_job(value: Object) -> None:
    spec = value["spec"]
    if spec.get("manualSelector"):
        return
    uid, name = value["metadata"]["uid"], value["metadata"].get("name", "")
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    metadata = spec["template"].setdefault("metadata", {})
    if value["metadata"].get("labels") == metadata.get("labels"):
        value["metadata"]["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
