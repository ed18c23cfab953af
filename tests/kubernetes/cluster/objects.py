"""Objects that tests of the cluster itself create."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.cluster.client import Object
from tests.kubernetes.cluster.volumes import NAME

STORAGE_CLASS: Object = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "test"},
    "provisioner": NAME,
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowVolumeExpansion": True,
}


def describe_namespace(name: str) -> Object:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def describe_template(name: str, script: str = "", **spec: Any) -> Object:
    """A template of pods with one container, ``main``, that follows ``script``."""
    variables = [{"name": "TEST_SCRIPT", "value": script}] if script else []
    container = {"name": "main", "image": "example.test/app:1", "env": variables}
    labels = {"app": name}
    return {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 30, "containers": [container], **spec},
    }


def describe_pod(namespace: str, name: str, script: str = "", **spec: Any) -> Object:
    """A pod by itself."""
    template = describe_template(name, script, **spec)
    metadata = {"name": name, "namespace": namespace, **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def describe_workload(kind: str, namespace: str, name: str, template: Object, **spec: Any) -> Object:
    """A Deployment or StatefulSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }


def describe_job(namespace: str, name: str, script: str = "", **spec: Any) -> Object:
    """A Job whose pods are not started again."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": describe_template(name, script, restartPolicy="Never"), **spec},
    }
