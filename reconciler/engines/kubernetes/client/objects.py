"""Kubernetes objects as JSON values, the kinds that this program uses, and the identity of an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

KubeObject = dict[str, Any]
"""An object as the API has it: ``apiVersion``, ``kind``, ``metadata`` and the rest, in plain JSON values."""


class ManagedFields(msgspec.Struct, frozen=True, rename={"fields": "fieldsV1"}):
    """The fields that a manager set, as the server stores them."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields: msgspec.Raw = msgspec.Raw(b"{}")


class ObjectKind(msgspec.Struct, frozen=True, order=True):
    """A kind that the API serves under ``plural``; ``group`` is "" for the core group."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects name it: ``apps/v1``, or ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "") -> str:
        """The path of a collection, of all namespaces without ``namespace``, or of the object ``name`` in it."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/" + "/".join([*parts, self.plural, *((name,) if name else ())])

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class ObjectId(NamedTuple):
    """An object of a cluster; ``namespace`` is "" for a kind without namespaces."""

    kind: ObjectKind
    namespace: str
    name: str

    def __str__(self) -> str:
        space = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.kind} {self.name}{space}"

    @property
    def path(self) -> str:
        """The path of the object."""
        return self.kind.path(self.namespace, self.name)


NAMESPACE = ObjectKind("", "v1", "Namespace", "namespaces", namespaced=False)
CONFIG_MAP = ObjectKind("", "v1", "ConfigMap", "configmaps")
SECRET = ObjectKind("", "v1", "Secret", "secrets")
SERVICE = ObjectKind("", "v1", "Service", "services")
SERVICE_ACCOUNT = ObjectKind("", "v1", "ServiceAccount", "serviceaccounts")
POD = ObjectKind("", "v1", "Pod", "pods")
CLAIM = ObjectKind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
PERSISTENT_VOLUME = ObjectKind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
EVENT = ObjectKind("", "v1", "Event", "events")
DEPLOYMENT = ObjectKind("apps", "v1", "Deployment", "deployments")
REPLICA_SET = ObjectKind("apps", "v1", "ReplicaSet", "replicasets")
STATEFUL_SET = ObjectKind("apps", "v1", "StatefulSet", "statefulsets")
CRON_JOB = ObjectKind("batch", "v1", "CronJob", "cronjobs")
JOB = ObjectKind("batch", "v1", "Job", "jobs")
AUTOSCALER = ObjectKind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
DISRUPTION_BUDGET = ObjectKind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = ObjectKind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
INGRESS = ObjectKind("networking.k8s.io", "v1", "Ingress", "ingresses")
STORAGE_CLASS = ObjectKind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)
HTTP_ROUTE = ObjectKind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
KNATIVE_SERVICE = ObjectKind("serving.knative.dev", "v1", "Service", "services")
DOMAIN_MAPPING = ObjectKind("serving.knative.dev", "v1beta1", "DomainMapping", "domainmappings")
HTTP_SCALED_OBJECT = ObjectKind("http.keda.sh", "v1alpha1", "HTTPScaledObject", "httpscaledobjects")
VOLUME_SNAPSHOT = ObjectKind("snapshot.storage.k8s.io", "v1", "VolumeSnapshot", "volumesnapshots")
POD_METRICS = ObjectKind("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")

ALWAYS_SERVED = (
    NAMESPACE,
    CONFIG_MAP,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    POD,
    CLAIM,
    DEPLOYMENT,
    STATEFUL_SET,
    CRON_JOB,
    JOB,
    AUTOSCALER,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    INGRESS,
)
"""Kinds of ours that every cluster serves."""
ADDITIONAL = (HTTP_ROUTE, KNATIVE_SERVICE, DOMAIN_MAPPING, HTTP_SCALED_OBJECT, VOLUME_SNAPSHOT)
"""Kinds of ours that only some clusters serve."""

SCALERS = (AUTOSCALER, HTTP_SCALED_OBJECT)
"""Kinds of ours that let a controller set the number of replicas of a workload."""

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in (*ALWAYS_SERVED, *ADDITIONAL, REPLICA_SET, EVENT)}


def kind_of(item: Mapping[str, Any]) -> ObjectKind:
    """The kind of an object. Raises KeyError for one that this program does not use."""
    return _BY_NAME[item["apiVersion"], item["kind"]]


def id_of(item: Mapping[str, Any]) -> ObjectId:
    """The identity of an object."""
    metadata = item["metadata"]
    return ObjectId(kind_of(item), metadata.get("namespace", ""), metadata["name"])
