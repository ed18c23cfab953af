"""Defaults that depend on other fields, which the schemas cannot state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from reconciler.manifests.field_schema import FieldSchema, shape_of
from reconciler.manifests.normalize import ManifestContext, translate_text
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import RESOURCE_METRICS

Body = dict[str, Any]


def apply_defaults(kind: Kind, body: Body, dialect: ManifestContext) -> None:
    """Fill in place the defaults of ``kind`` that other fields decide."""
    body.setdefault("description", body["name"])
    fill = _COMPLETE.get(kind)
    if fill is not None:
        fill(body, dialect)


def upgrade_deprecated(kind: Kind, body: Body) -> Body:
    """``body`` without deprecated fields, before defaults are filled: ``port`` becomes ``ports``."""
    if kind is not Kind.WORKLOAD:
        return body
    spec = dict(body["spec"])
    kind_of_workload = spec.get("type", "serverless")
    spec["containers"] = [_with_ports(container) for container in spec["containers"]]
    spec["defaultOptions"] = _with_metric(spec.get("defaultOptions", {}), kind_of_workload)
    if "localOptions" in spec:
        spec["localOptions"] = [_with_metric(options, kind_of_workload) for options in spec["localOptions"]]
    return {**body, "spec": spec}


def list_variables(kind: Kind, body: Body) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The name of every environment variable that ``body`` sets, and its pointer; ``body`` may lack fields."""
    holders: list[tuple[tuple[str | int, ...], Body]] = []
    if kind is Kind.GVC:
        holders = [(("spec",), body.get("spec", {}))]
    elif kind is Kind.WORKLOAD:
        containers = body.get("spec", {}).get("containers", ())
        holders = [(("spec", "containers", index), value) for index, value in enumerate(containers)]
    for pointer, holder in holders:
        for index, variable in enumerate(holder.get("env", ())):
            yield (*pointer, "env", index, "name"), variable.get("name", "")


def drop_defaults(kind: Kind, body: Body) -> Body:
    """``body``, a manifest in normal form, without the fields that would be the same if they were left out."""
    fields: Body = _drop_filled(shape_of(kind), body)
    if fields.get("description") == body.get("name"):
        fields.pop("description", None)
    return fields


def _drop_filled(shape: FieldSchema | None, value: Any) -> Any:
    if shape is None:
        return value
    if isinstance(value, list):
        return [_drop_filled(shape.items, item) for item in value]
    if not isinstance(value, dict):
        return value
    own = {name: member for name, member in value.items() if name not in shape.fill or member != shape.fill[name]}
    return {name: _drop_filled(shape.member(name), member) for name, member in own.items()}


def _with_ports(container: Body) -> Body:
    if "port" not in container:
        return container
    rest = {name: value for name, value in container.items() if name != "port"}
    return {**rest, "ports": [{"number": container["port"], "protocol": "http2"}]}


def _with_metric(options: Body, workload_type: str) -> Body:
    """The default strategy and Capacity AI (docs/platform/workload.md#autoscaling)."""
    autoscaling = dict(options.get("autoscaling", {}))
    capacity_ai = options.get("capacityAI")
    if "metric" not in autoscaling:
        by_type = "cpu" if capacity_ai is False else "disabled"
        autoscaling["metric"] = "concurrency" if workload_type == "serverless" else by_type
    if autoscaling["metric"] == "latency":
        autoscaling.setdefault("metricPercentile", "p50")
    if capacity_ai is None:
        capacity_ai = autoscaling["metric"] not in RESOURCE_METRICS and workload_type != "cron"
    return {**options, "autoscaling": autoscaling, "capacityAI": capacity_ai}


def _set_workload_defaults(body: Body, dialect: ManifestContext) -> None:
    spec = body["spec"]
    for container in spec["containers"]:
        _set_container_defaults(container, dialect)
    first = _first_port(spec["containers"])
    for container in spec["containers"]:
        for probe in ("readinessProbe", "livenessProbe"):
            if probe in container:
                _probe_port(container[probe], _first_port([container]) or first)
    if spec["type"] == "serverless" and first:
        exposed = next(container for container in spec["containers"] if container.get("ports"))
        exposed.setdefault("readinessProbe", {**_PROBE, "tcpSocket": {"port": first}})
    for field in ("maxSurgeReplicas", "maxUnavailableReplicas"):
        count = spec.get("rolloutOptions", {}).get(field)
        if isinstance(count, str) and count.isdigit():
            spec["rolloutOptions"][field] = int(count)
    if spec["type"] == "stateful" and "rolloutOptions" in spec:
        spec["rolloutOptions"].setdefault("scalingPolicy", "OrderedReady")


_PROBE = {
    "initialDelaySeconds": 0,
    "periodSeconds": 10,
    "timeoutSeconds": 1,
    "successThreshold": 1,
    "failureThreshold": 3,
}


def _set_container_defaults(container: Body, dialect: ManifestContext) -> None:
    image = container["image"]
    if image.startswith("//"):
        container["image"] = f"/org/{dialect.org}/{image[2:]}"
    if dialect.scheme != "platform":
        container["args"] = [translate_text(arg, dialect.scheme) for arg in container["args"]]
        if "command" in container:
            container["command"] = translate_text(container["command"], dialect.scheme)


def _first_port(containers: list[Body]) -> int:
    return next((port["number"] for container in containers for port in container.get("ports", ())), 0)


def _probe_port(probe: Body, port: int) -> None:
    for form in ("httpGet", "tcpSocket", "grpc"):
        if form in probe and port:
            probe[form] = {"port": port, **probe[form]}


def _set_policy_defaults(body: Body, _: ManifestContext) -> None:
    if "targetQuery" in body:
        body["targetQuery"].setdefault("kind", body["targetKind"])


_COMPLETE: dict[Kind, Callable[[Body, ManifestContext], None]] = {
    Kind.WORKLOAD: _set_workload_defaults,
    Kind.POLICY: _set_policy_defaults,
}
