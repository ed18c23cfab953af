"""The API metrics.k8s.io, which a cluster has once it is registered: what containers use, as tests set it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tests.kubernetes.cluster.client import Object
from tests.kubernetes.cluster.pod import Pod, format_now

VERSION = "metrics.k8s.io/v1beta1"
IDLE = ("1m", "10Mi")


def register_metrics(port: int) -> list[Object]:
    """The objects that let an API server ask 127.0.0.1:``port`` for this API."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "metrics-server", "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {"name": "metrics-server", "namespace": "kube-system", "port": port},
            },
        },
    ]


def describe_metrics(rest: str, pods: Iterable[Pod], usage: Mapping[str, tuple[str, str]]) -> Object | None:
    """The answer for the path below the group; None where there is nothing."""
    words = rest.strip("/").split("/")
    if words == ["v1beta1"]:
        names = (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))
        resources = [
            {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]}
            for name, kind, namespaced in names
        ]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION, "resources": resources}
    namespace = words[2] if words[1:2] == ["namespaces"] else ""
    if words[1:] not in (["pods"], ["namespaces", namespace, "pods"]):
        return None
    items = [
        _describe_pod(pod, usage)
        for pod in pods
        if not namespace or pod.item["metadata"]["namespace"] == namespace
        if any(container.running for container in pod.containers)
    ]
    return {"kind": "PodMetricsList", "apiVersion": VERSION, "metadata": {}, "items": items}


def _describe_pod(pod: Pod, usage: Mapping[str, tuple[str, str]]) -> Object:
    metadata = pod.item["metadata"]
    place = f"{metadata['namespace']}/{metadata['name']}"
    cpu, memory = next((used for glob, used in usage.items() if fnmatchcase(place, glob)), IDLE)
    containers: list[dict[str, Any]] = [
        {"name": each.name, "usage": {"cpu": cpu, "memory": memory}} for each in pod.containers if each.running
    ]
    return {
        "metadata": {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata},
        "timestamp": format_now(),
        "window": "15s",
        "containers": containers,
    }
