"""Requests of `exchanges.py`, and the objects in them.

A body or a query may name what an earlier answer had: ``$UID`` and ``$VERSION`` of the answer before, ``$VERSION2`` of
the second step, ``$CONTINUE`` of a page.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Object = dict[str, Any]

PATHS = {
    "ConfigMap": "/api/v1/namespaces/NAMESPACE/configmaps",
    "CronJob": "/apis/batch/v1/namespaces/NAMESPACE/cronjobs",
    "Deployment": "/apis/apps/v1/namespaces/NAMESPACE/deployments",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/NAMESPACE/horizontalpodautoscalers",
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/NAMESPACE/ingresses",
    "Job": "/apis/batch/v1/namespaces/NAMESPACE/jobs",
    "Namespace": "/api/v1/namespaces",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/NAMESPACE/networkpolicies",
    "PersistentVolumeClaim": "/api/v1/namespaces/NAMESPACE/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/NAMESPACE/poddisruptionbudgets",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/NAMESPACE/rolebindings",
    "Secret": "/api/v1/namespaces/NAMESPACE/secrets",
    "Service": "/api/v1/namespaces/NAMESPACE/services",
    "ServiceAccount": "/api/v1/namespaces/NAMESPACE/serviceaccounts",
    "StatefulSet": "/apis/apps/v1/namespaces/NAMESPACE/statefulsets",
    "Thing": "/apis/example.com/v1/namespaces/NAMESPACE/things",
}
VERSIONS = {kind: "v1" if path.startswith("/api/") else "/".join(path.split("/")[2:4]) for kind, path in PATHS.items()}
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Step(NamedTuple):
    """A request. ``events`` are read of a watch.

    The request is repeated until its status is ``until``. The answer is not compared where it is not ``shown``.
    """

    method: str
    path: str = ""
    query: dict[str, str] = {}
    body: Any = None
    media_type: str = JSON
    events: int = 0
    until: int = 0
    shown: bool = True
    accept: str = "application/json"


class Exchange(NamedTuple):
    """Requests, one after the other, in a namespace of their own."""

    name: str
    steps: tuple[Step, ...]


def kind_object(kind: str, name: str = "a", metadata: Object | None = None, **content: Any) -> Object:
    """An object of a kind."""
    return {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": {"name": name, **(metadata or {})}, **content}


def config_map(name: str = "a", metadata: Object | None = None, **data: str) -> Object:
    """A ConfigMap."""
    return kind_object("ConfigMap", name, metadata, data=data)


def container(**fields: Any) -> Object:
    """A container."""
    return {"name": "main", "image": "nginx:1", **fields}


def pod_template(*containers: Object, labels: Object | None = None, **spec: Any) -> Object:
    """A template of pods."""
    return {"metadata": {"labels": labels or {"app": "a"}}, "spec": {"containers": list(containers), **spec}}


def deployment(*containers: Object, template: Object | None = None, **spec: Any) -> Object:
    """A Deployment."""
    template = template or pod_template(*(containers or (container(),)))
    return kind_object("Deployment", spec={"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec})


def stateful_set(**spec: Any) -> Object:
    """A StatefulSet with a claim."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    content = {
        "serviceName": "a",
        "selector": {"matchLabels": {"app": "a"}},
        "template": pod_template(container()),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        **spec,
    }
    return kind_object("StatefulSet", spec=content)


def service(**spec: Any) -> Object:
    """A Service."""
    return kind_object("Service", spec={"selector": {"app": "a"}, "ports": [{"port": 80}], **spec})


def job(**spec: Any) -> Object:
    """A Job."""
    return kind_object("Job", spec={"template": pod_template(container(), restartPolicy="Never"), **spec})


def claim(storage: str = "1Gi", **spec: Any) -> Object:
    """A claim."""
    content = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}, **spec}
    return kind_object("PersistentVolumeClaim", spec=content)


def cron_job(**spec: Any) -> Object:
    """A CronJob."""
    return kind_object("CronJob", spec={"schedule": "0 0 * * *", "jobTemplate": {"spec": job()["spec"]}, **spec})


def autoscaler(**spec: Any) -> Object:
    """A HorizontalPodAutoscaler."""
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    content = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
        "maxReplicas": 3,
        "metrics": [{"type": "Resource", "resource": metric}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    }
    return kind_object("HorizontalPodAutoscaler", spec=content | spec)


def network_policy(**spec: Any) -> Object:
    """A NetworkPolicy."""
    content = {
        "podSelector": {"matchLabels": {"app": "a"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 80}]}],
        "egress": [{}],
    }
    return kind_object("NetworkPolicy", spec=content | spec)


def apply(value: Object, manager: str = "one", subresource: str = "", **query: str) -> Step:
    """Server-side apply."""
    path = f"{PATHS[value['kind']]}/{value['metadata']['name']}{subresource}"
    return Step("PATCH", path, {"fieldManager": manager, **query}, value, APPLY)


def create(value: Object, **query: str) -> Step:
    """A new object."""
    return Step("POST", PATHS[value["kind"]], {"fieldManager": "creator", **query}, value)


def update(value: Object, **query: str) -> Step:
    """A whole object."""
    return Step(
        "PUT", f"{PATHS[value['kind']]}/{value['metadata']['name']}", {"fieldManager": "editor", **query}, value
    )


def patch(kind: str, body: Any, media_type: str = MERGE, name: str = "a", subresource: str = "") -> Step:
    """A part of an object."""
    return Step("PATCH", f"{PATHS[kind]}/{name}{subresource}", {"fieldManager": "patcher"}, body, media_type)


def get(kind: str, name: str = "a", subresource: str = "") -> Step:
    """One object."""
    return Step("GET", f"{PATHS[kind]}/{name}{subresource}")


def delete(kind: str, name: str = "a", body: Any = None, **query: str) -> Step:
    """The end of an object."""
    return Step("DELETE", f"{PATHS[kind]}/{name}", query, body)


def page(kind: str, **query: str) -> Step:
    """A list, or a page of it."""
    return Step("GET", PATHS[kind], query)


def watch(kind: str, events: int, **query: str) -> Step:
    """A watch, of which so many events are read."""
    return Step("GET", PATHS[kind], {"watch": "true", **query}, events=events)
