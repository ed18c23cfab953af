"""What the server refuses in an object, with its words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.kubernetes.fake.defaults import pod_specs
from tests.kubernetes.fake.errors import Cause, Object, Resource, conflict, invalid
from tests.kubernetes.fake.objects import is_quantity, quantity_value
from tests.kubernetes.fake.selectors import matches_selector

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_SERVICE = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_QUALIFIED = re.compile(r"^(([a-z0-9]([-a-z0-9.]*[a-z0-9])?)/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_CONFIG_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
_PATH_SEGMENT = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
SERVICE_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
KEY_TEXT = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
STATEFUL_TEXT = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
STATEFUL_MUTABLE = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "serviceName",
        "selector",
        "podManagementPolicy",
        "volumeClaimTemplates",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)
CLAIM_TEXT = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
POD_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
ANNOTATION_BYTES = 256 * 1024


def show_value(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), sort_keys=True)
    return f'"{value}"' if isinstance(value, str) else "null" if value is None else str(value)


def required(field: str, why: str = "") -> Cause:
    """A field that is missing."""
    return Cause("FieldValueRequired", "Required value" + (f": {why}" if why else ""), field)


def wrong(field: str, value: Any, why: str) -> Cause:
    """A value that is not valid."""
    return Cause("FieldValueInvalid", f"Invalid value: {show_value(value)}: {why}", field)


def unsupported(field: str, value: Any, choices: list[str]) -> Cause:
    """A value that is none of the choices."""
    listed = ", ".join(f'"{choice}"' for choice in sorted(choices))
    return Cause("FieldValueNotSupported", f"Unsupported value: {show_value(value)}: supported values: {listed}", field)


def refused(field: str, why: str) -> Cause:
    """A change that is not allowed."""
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def check_object(resource: Resource, value: Object) -> None:
    """ApiError with every cause for which an object is not valid."""
    causes = [*_metadata_causes(resource, value["metadata"])]
    if not resource.custom:
        causes += CHECKS.get(resource.kind, _no_causes)(value)
        for path, spec in _paths_of_pod_specs(value):
            causes += _pod_causes(spec, path, value)
    if causes:
        raise invalid(resource, value["metadata"].get("name", ""), causes)


def _no_causes(value: Object) -> Iterator[Cause]:
    return iter(())


def _metadata_causes(resource: Resource, metadata: Object) -> Iterator[Cause]:
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif resource.kind == "Namespace" or (resource.kind == "Service" and resource.group == ""):
        good, text = (_LABEL, LABEL_TEXT) if resource.kind == "Namespace" else (_SERVICE, SERVICE_TEXT)
        if "." in name:
            yield wrong("metadata.name", name, "must not contain dots")
        elif not good.match(name):
            yield wrong("metadata.name", name, text)
        if len(name) > 63:
            yield wrong("metadata.name", name, "must be no more than 63 characters")
    elif len(name) > 253:
        yield wrong("metadata.name", name, "must be no more than 253 characters")
    elif resource.kind not in _PATH_SEGMENT and not _SUBDOMAIN.match(name):
        yield wrong("metadata.name", name, SUBDOMAIN_TEXT)
    for key, text in (metadata.get("labels") or {}).items():
        if not _QUALIFIED.match(key):
            yield wrong("metadata.labels", key, KEY_TEXT)
        if len(text) > 63:
            yield wrong("metadata.labels", text, "must be no more than 63 bytes")
        if not _VALUE.match(text):
            yield wrong("metadata.labels", text, VALUE_TEXT)
    size = sum(len(key) + len(text) for key, text in (metadata.get("annotations") or {}).items())
    if size > ANNOTATION_BYTES:
        yield Cause(
            "FieldValueTooLong", f"Too long: may not be more than {ANNOTATION_BYTES} bytes", "metadata.annotations"
        )


def _paths_of_pod_specs(value: Object) -> Iterator[tuple[str, Object]]:
    path = {"Pod": "spec", "CronJob": "spec.jobTemplate.spec.template.spec"}.get(value["kind"], "spec.template.spec")
    yield from ((path, spec) for spec in pod_specs(value))


def _pod_causes(spec: Object, path: str, value: Object) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    claims = value["spec"].get("volumeClaimTemplates") or ()
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    volumes |= {claim["metadata"].get("name") for claim in claims}
    for group in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(group) or ()):
            yield from _container_causes(container, f"{path}.{group}[{number}]", volumes)
    allowed = {"Job": ["OnFailure", "Never"], "CronJob": ["OnFailure", "Never"]}.get(value["kind"])
    policy = spec.get("restartPolicy")
    if allowed and policy not in allowed:
        yield required(f"{path}.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif not allowed and value["kind"] != "Pod" and policy != "Always":
        yield unsupported(f"{path}.restartPolicy", policy, ["Always"])


def _container_causes(container: Object, path: str, volumes: set[Any]) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif not _LABEL.match(name):
        yield wrong(f"{path}.name", name, LABEL_TEXT)
    if not container.get("image"):
        yield required(f"{path}.image")
    for number, port in enumerate(container.get("ports") or ()):
        if not 0 < (port.get("containerPort") or 0) < 65536:
            value_of_port = port.get("containerPort") or 0
            yield wrong(
                f"{path}.ports[{number}].containerPort", value_of_port, "must be between 1 and 65535, inclusive"
            )
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield Cause(
                "FieldValueNotFound", f'Not found: "{mount.get("name")}"', f"{path}.volumeMounts[{number}].name"
            )
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        for key, amount in (resources.get(kind) or {}).items():
            if not is_quantity(amount) or quantity_value(amount) < 0:
                yield wrong(f"{path}.resources.{kind}[{key}]", amount, "must be greater than or equal to 0")
    for key, amount in (resources.get("requests") or {}).items():
        limit = (resources.get("limits") or {}).get(key)
        if limit is not None and quantity_value(amount) > quantity_value(limit):
            yield wrong(f"{path}.resources.requests", amount, f"must be less than or equal to {key} limit of {limit}")


def _workload_causes(value: Object) -> Iterator[Cause]:
    spec = value["spec"]
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not selector:
        yield required("spec.selector")
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield wrong("spec.selector", selector, "empty selector is invalid for deployment")
    if selector and not matches_selector(selector, labels):
        yield wrong("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate") is not None:
        yield refused("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    if (spec.get("replicas") or 0) < 0:
        yield wrong("spec.replicas", spec["replicas"], "must be greater than or equal to 0")


def _service_causes(value: Object) -> Iterator[Cause]:
    spec = value["spec"]
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        yield required("spec.ports")
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
    if spec["type"] not in types:
        yield unsupported("spec.type", spec["type"], types)
    ports = spec.get("ports") or []
    for number, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            yield required(f"spec.ports[{number}].name")
        if not 0 < (port.get("port") or 0) < 65536:
            yield wrong(f"spec.ports[{number}].port", port.get("port") or 0, "must be between 1 and 65535, inclusive")
        target = port.get("targetPort")
        if isinstance(target, int) and not 0 < target < 65536:
            yield wrong(f"spec.ports[{number}].targetPort", target, "must be between 1 and 65535, inclusive")


def _claim_causes(value: Object) -> Iterator[Cause]:
    spec = value["spec"]
    if not spec.get("accessModes"):
        yield required("spec.accessModes", "at least 1 access mode is required")
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield required("spec.resources[storage]")


def _autoscaler_causes(value: Object) -> Iterator[Cause]:
    spec = value["spec"]
    if not spec.get("maxReplicas"):
        yield wrong("spec.maxReplicas", 0, "must be greater than 0")
    elif (spec.get("minReplicas") or 1) > spec["maxReplicas"]:
        yield wrong("spec.maxReplicas", spec["maxReplicas"], "must be greater than or equal to `minReplicas`")


def _cron_causes(value: Object) -> Iterator[Cause]:
    if not value["spec"].get("schedule"):
        yield required("spec.schedule")
    if len(value["metadata"].get("name", "")) > 52:
        yield wrong("metadata.name", value["metadata"]["name"], "must be no more than 52 characters")


def _budget_causes(value: Object) -> Iterator[Cause]:
    if {"minAvailable", "maxUnavailable"} <= value["spec"].keys():
        yield wrong("spec", value["spec"], "minAvailable and maxUnavailable cannot be both set")


def _data_causes(value: Object) -> Iterator[Cause]:
    for key in value.get("data") or ():
        if not _CONFIG_KEY.match(key):
            yield wrong(f"data[{key}]", key, CONFIG_KEY_TEXT)


def _secret_causes(value: Object) -> Iterator[Cause]:
    data = value.get("data") or {}
    yield from _data_causes(value)
    required_keys = {
        "kubernetes.io/dockerconfigjson": [".dockerconfigjson"],
        "kubernetes.io/tls": ["tls.crt", "tls.key"],
    }
    for key in required_keys.get(value.get("type", ""), ()):
        if key not in data:
            yield required(f"data[{key}]")


CHECKS: dict[str, Callable[[Object], Iterator[Cause]]] = {
    "ConfigMap": _data_causes,
    "CronJob": _cron_causes,
    "DaemonSet": _workload_causes,
    "Deployment": _workload_causes,
    "HorizontalPodAutoscaler": _autoscaler_causes,
    "PersistentVolumeClaim": _claim_causes,
    "PodDisruptionBudget": _budget_causes,
    "ReplicaSet": _workload_causes,
    "Secret": _secret_causes,
    "Service": _service_causes,
    "StatefulSet": _workload_causes,
}
"""Kind → what is checked in it."""


def check_change(resource: Resource, live: Object, new: Object) -> None:
    """ApiError with every cause for which ``live`` cannot become ``new``."""
    name = live["metadata"]["name"]
    asked = new["metadata"].get("resourceVersion")
    if asked and asked != live["metadata"]["resourceVersion"]:
        raise conflict(resource, name)
    causes = [*_metadata_changes(live, new)]
    if not resource.custom:
        causes += CHANGES.get(resource.kind, _no_changes)(live, new)
    if causes:
        raise invalid(resource, name, causes)


def _no_changes(live: Object, new: Object) -> Iterator[Cause]:
    return iter(())


def _metadata_changes(live: Object, new: Object) -> Iterator[Cause]:
    if live["metadata"].get("deletionTimestamp"):
        more = set(new["metadata"].get("finalizers") or ()) - set(live["metadata"].get("finalizers") or ())
        if more:
            added = ", ".join(f'"{name}"' for name in sorted(more))
            why = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
            yield refused("metadata.finalizers", f"{why}{{{added}}}")


def _fixed_selector(live: Object, new: Object) -> Iterator[Cause]:
    selector = new["spec"].get("selector")
    if live["spec"].get("selector") != selector:
        yield wrong("spec.selector", selector, "field is immutable")


def _fixed_job(live: Object, new: Object) -> Iterator[Cause]:
    for name in ("completions", "selector", "template"):
        if live["spec"].get(name) != new["spec"].get(name) and not (name == "completions" and _is_elastic(new)):
            yield wrong(f"spec.{name}", new["spec"].get(name), "field is immutable")


def _is_elastic(job: Object) -> bool:
    spec = job["spec"]
    return bool(spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism"))


def _fixed_stateful_set(live: Object, new: Object) -> Iterator[Cause]:
    for name in ("serviceName", "selector", "podManagementPolicy", "volumeClaimTemplates"):
        if live["spec"].get(name) != new["spec"].get(name):
            yield wrong(f"spec.{name}", new["spec"].get(name) or [], "field is immutable")
    old, fresh = (
        {key: entry for key, entry in value["spec"].items() if key not in STATEFUL_MUTABLE} for value in (live, new)
    )
    if old != fresh:
        yield refused("spec", STATEFUL_TEXT)


def _fixed_claim(live: Object, new: Object) -> Iterator[Cause]:
    old, fresh = live["spec"], new["spec"]

    def others(spec: Object) -> Object:
        rest = {
            key: entry
            for key, entry in spec.items()
            if key not in ("resources", "volumeName", "volumeAttributesClassName")
        }
        return rest | ({"volumeName": spec.get("volumeName")} if old.get("volumeName") else {})

    def size(spec: Object) -> Any:
        return quantity_value(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))

    bound = (live.get("status") or {}).get("phase") == "Bound"
    if others(old) != others(fresh) or (size(old) != size(fresh) and not bound):
        yield refused("spec", CLAIM_TEXT)
    elif size(fresh) < size(old):
        capacity = quantity_value(((live.get("status") or {}).get("capacity") or {}).get("storage", "0"))
        if size(fresh) <= capacity:
            yield refused("spec.resources.requests.storage", "field can not be less than status.capacity")


def _fixed_service(live: Object, new: Object) -> Iterator[Cause]:
    old, fresh = live["spec"], new["spec"]
    if "ExternalName" in (old["type"], fresh["type"]):
        return
    if old.get("clusterIP") and old.get("clusterIP") != fresh.get("clusterIP"):
        yield wrong("spec.clusterIPs[0]", [fresh.get("clusterIP")], "may not change once set")


def _fixed_data(live: Object, new: Object) -> Iterator[Cause]:
    if live["kind"] == "Secret" and live.get("type") != new.get("type"):
        yield wrong("type", new.get("type"), "field is immutable")
    if live.get("immutable"):
        why = "field is immutable when `immutable` is set"
        if not new.get("immutable"):
            yield refused("immutable", why)
        for name in ("data", "binaryData"):
            if (live.get(name) or {}) != (new.get(name) or {}):
                yield refused(name, why)


def _fixed_pod(live: Object, new: Object) -> Iterator[Cause]:
    def fixed(spec: Object) -> Object:
        rest = {key: entry for key, entry in spec.items() if key not in ("activeDeadlineSeconds", "tolerations")}
        for group in ("containers", "initContainers"):
            rest[group] = [{**container, "image": ""} for container in spec.get(group) or ()]
        return rest

    if fixed(live["spec"]) != fixed(new["spec"]):
        yield refused("spec", POD_TEXT)


def _fixed_role(live: Object, new: Object) -> Iterator[Cause]:
    if live.get("roleRef") != new.get("roleRef"):
        yield wrong("roleRef", new.get("roleRef"), "field is immutable")


CHANGES: dict[str, Callable[[Object, Object], Iterator[Cause]]] = {
    "ClusterRoleBinding": _fixed_role,
    "ConfigMap": _fixed_data,
    "DaemonSet": _fixed_selector,
    "Deployment": _fixed_selector,
    "Job": _fixed_job,
    "PersistentVolumeClaim": _fixed_claim,
    "Pod": _fixed_pod,
    "ReplicaSet": _fixed_selector,
    "RoleBinding": _fixed_role,
    "Secret": _fixed_data,
    "Service": _fixed_service,
    "StatefulSet": _fixed_stateful_set,
}
"""Kind → what cannot change in it."""
