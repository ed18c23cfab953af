"""The values that the server fills in."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from tests.kubernetes.fake.errors import Object

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
MODES = {"secret": 420, "configMap": 420, "projected": 420, "downwardAPI": 420}
"""The permissions of files in a volume, by its source."""


def _set(value: Object, **entries: Any) -> None:
    for key, entry in entries.items():
        if value.get(key) is None or value[key] == "":
            value[key] = entry


def fill_pod_spec(spec: Object) -> None:
    """Fill in what every pod template gets."""
    _set(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler")
    _set(spec, terminationGracePeriodSeconds=30, securityContext={})
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        name = spec.get("serviceAccountName") or spec["serviceAccount"]
        spec.update(serviceAccountName=name, serviceAccount=name)
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            _fill_container(container, spec)
    for volume in spec.get("volumes") or ():
        _fill_volume(volume)


def _fill_container(container: Object, spec: Object) -> None:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    moving = "@" not in image and tag in ("", "latest")
    _set(container, imagePullPolicy="Always" if moving else "IfNotPresent")
    _set(container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File", resources={})
    for port in container.get("ports") or ():
        _set(port, protocol="TCP")
        if spec.get("hostNetwork"):
            _set(port, hostPort=port["containerPort"])
    for name in PROBES:
        if probe := container.get(name):
            _set(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            _fill_handler(probe)
            for number in ("timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
                probe[number] = probe[number] or {"timeoutSeconds": 1, "periodSeconds": 10, "failureThreshold": 3}.get(
                    number, 1
                )
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _fill_handler(hook)
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference:
            _set(reference, apiVersion="v1")


def _fill_handler(handler: Object) -> None:
    if request := handler.get("httpGet"):
        _set(request, path="/", scheme="HTTP")
    if "grpc" in handler and isinstance(handler["grpc"], dict):
        handler["grpc"].setdefault("service", "")


def _fill_volume(volume: Object) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    for source, mode in MODES.items():
        if source in volume:
            _set(volume[source], defaultMode=mode)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            _set(source["serviceAccountToken"], expirationSeconds=3600)


def _fill_deployment(value: Object) -> None:
    spec = value["spec"]
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec.setdefault("strategy", {})
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(strategy, rollingUpdate={})
        _set(strategy["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")


def _fill_stateful_set(value: Object) -> None:
    spec = value["spec"]
    _set(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(strategy, rollingUpdate={})
        _set(strategy["rollingUpdate"], partition=0, maxUnavailable=1)
    _set(spec, persistentVolumeClaimRetentionPolicy={})
    _set(spec["persistentVolumeClaimRetentionPolicy"], whenDeleted="Retain", whenScaled="Retain")
    for claim in spec.get("volumeClaimTemplates") or ():
        _set(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        _fill_claim(claim)


def _fill_daemon_set(value: Object) -> None:
    spec = value["spec"]
    _set(spec, revisionHistoryLimit=10)
    strategy = spec.setdefault("updateStrategy", {})
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(strategy, rollingUpdate={})
        _set(strategy["rollingUpdate"], maxUnavailable=1, maxSurge=0)


def _fill_replica_set(value: Object) -> None:
    _set(value["spec"], replicas=1)


def _fill_job(value: Object) -> None:
    spec = value["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec.update(completions=1, parallelism=1)
    _set(spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False, manualSelector=False)
    _set(spec, podReplacementPolicy="TerminatingOrFailed")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not value["metadata"].get("labels"):
        value["metadata"]["labels"] = dict(labels)
    if spec.get("podFailurePolicy"):
        spec["podReplacementPolicy"] = "Failed"


def _fill_cron_job(value: Object) -> None:
    _set(value["spec"], concurrencyPolicy="Allow", suspend=False)
    _set(value["spec"], successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)


def _fill_claim(value: Object) -> None:
    _set(value.setdefault("spec", {}), volumeMode="Filesystem")
    _set(value.setdefault("status", {}), phase="Pending")


def _fill_volume_object(value: Object) -> None:
    _set(value["spec"], persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    _set(value.setdefault("status", {}), phase="Pending")


def _fill_service(value: Object) -> None:
    spec = value["spec"]
    _set(spec, type="ClusterIP", sessionAffinity="None")
    if spec["sessionAffinity"] == "ClientIP":
        _set(spec, sessionAffinityConfig={"clientIP": {"timeoutSeconds": 10800}})
    else:
        spec.pop("sessionAffinityConfig", None)
    for port in spec.get("ports") or ():
        _set(port, protocol="TCP")
        if port.get("targetPort") in (None, "", 0):
            port["targetPort"] = port["port"]
    if spec["type"] in ("LoadBalancer", "NodePort"):
        _set(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _set(spec, allocateLoadBalancerNodePorts=True)
    if spec["type"] != "ExternalName":
        _set(spec, internalTrafficPolicy="Cluster")


def _fill_autoscaler(value: Object) -> None:
    spec = value["spec"]
    _set(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if spec.get("behavior") is not None:
        percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
        up = spec["behavior"].setdefault("scaleUp", {})
        _set(up, stabilizationWindowSeconds=0, selectPolicy="Max")
        _set(up, policies=[{"type": "Pods", "value": 4, "periodSeconds": 15}, percent])
        down = spec["behavior"].setdefault("scaleDown", {})
        _set(down, selectPolicy="Max", policies=[dict(percent)])


def _fill_network_policy(value: Object) -> None:
    spec = value["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
        for port in rule.get("ports") or ():
            _set(port, protocol="TCP")


def _fill_secret(value: Object) -> None:
    _set(value, type="Opaque")
    for key, text in (value.pop("stringData", None) or {}).items():
        value.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


def _fill_namespace(value: Object) -> None:
    _set(value.setdefault("status", {}), phase="Active")
    metadata = value["metadata"]
    metadata.setdefault("labels", {}).setdefault("kubernetes.io/metadata.name", metadata.get("name", ""))


def _fill_binding(value: Object) -> None:
    _set(value["roleRef"], apiGroup="rbac.authorization.k8s.io")
    for subject in value.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            _set(subject, apiGroup="rbac.authorization.k8s.io")


def _fill_storage_class(value: Object) -> None:
    _set(value, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _fill_pod(value: Object) -> None:
    spec = value["spec"]
    _set(spec, enableServiceLinks=True, serviceAccountName="default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        for name, limit in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, limit)
    _set(value.setdefault("status", {}), phase="Pending")


FILLING: dict[str, Callable[[Object], None]] = {
    "ClusterRoleBinding": _fill_binding,
    "CronJob": _fill_cron_job,
    "DaemonSet": _fill_daemon_set,
    "Deployment": _fill_deployment,
    "HorizontalPodAutoscaler": _fill_autoscaler,
    "Job": _fill_job,
    "Namespace": _fill_namespace,
    "NetworkPolicy": _fill_network_policy,
    "PersistentVolume": _fill_volume_object,
    "PersistentVolumeClaim": _fill_claim,
    "Pod": _fill_pod,
    "ReplicaSet": _fill_replica_set,
    "RoleBinding": _fill_binding,
    "Secret": _fill_secret,
    "Service": _fill_service,
    "StatefulSet": _fill_stateful_set,
    "StorageClass": _fill_storage_class,
}
"""Kind → what fills in its values."""


def pod_specs(value: Object) -> Iterator[Object]:
    """The specs of pods in an object: its own, and those of its templates."""
    spec = value.get("spec") or {}
    if value.get("kind") == "Pod":
        yield spec
    template = spec.get("template") or ((spec.get("jobTemplate") or {}).get("spec") or {}).get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        yield template["spec"]


def fill_defaults(value: Object) -> None:
    """Fill in the values of a built-in kind."""
    if value["kind"] in FILLING and (isinstance(value.get("spec"), dict) or value["kind"] in _WITHOUT_SPEC):
        FILLING[value["kind"]](value)
        for spec in pod_specs(value):
            fill_pod_spec(spec)


_WITHOUT_SPEC = frozenset({"ClusterRoleBinding", "Namespace", "RoleBinding", "Secret", "StorageClass"})
