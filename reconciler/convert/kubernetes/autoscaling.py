"""Replicas and HorizontalPodAutoscaler as options of a workload."""

from __future__ import annotations

from fractions import Fraction

from reconciler.convert.drafts import Body
from reconciler.convert.kubernetes.bundle import Bundle, Item
from reconciler.convert.tracked_value import TrackedValue

_MOST_CPU = 100


class Scalers:
    """The autoscalers of a bundle by their target."""

    def __init__(self, bundle: Bundle) -> None:
        self._scalers: dict[tuple[str, str, str], Item] = {}
        for item in bundle.of("HorizontalPodAutoscaler"):
            target = item.spec["scaleTargetRef"]
            target["apiVersion"].text()
            kind, name = target["kind"].text(), target["name"].text()
            if bundle.find(kind, item.namespace, name) is None:
                item.root.ignore()
                target["name"].add_note("convert-missing", f"{kind} {name}, which it scales, is not among the files")
            self._scalers[kind, item.namespace, name] = item

    def options(self, item: Item, share: Fraction) -> Body:
        """``defaultOptions`` of the workload of ``item``; ``share`` is the requested part of its cpu."""
        scaler = self._scalers.get((item.kind, item.namespace, item.name))
        replicas = item.spec["replicas"].number()
        if scaler is not None:
            return _build_autoscaling(scaler.spec, share)
        if item.kind == "DaemonSet":
            item.root["kind"].add_note(
                "convert-changed",
                "one replica on every machine has no counterpart; the workload gets one replica",
                "set defaultOptions.autoscaling",
            )
        if replicas == 0:
            return {"autoscaling": _build_fixed_scale(1), "suspend": True}
        return {"autoscaling": _build_fixed_scale(1 if replicas is None else max(replicas, 1))}


def _build_fixed_scale(replicas: int) -> Body:
    return {"metric": "disabled", "minScale": replicas, "maxScale": replicas}


def _build_autoscaling(spec: TrackedValue, share: Fraction) -> Body:
    least, most = spec["minReplicas"].number(), spec["maxReplicas"].number()
    if most is None:
        spec.add_note("convert-malformed", "the field `maxReplicas` is missing")
    if least == 0:
        spec["minReplicas"].add_note("convert-changed", "a standard workload always has a replica; the value becomes 1")
    bounds = {"minScale": max(least or 1, 1), "maxScale": max(most or 1, least or 1, 1)}
    target = _cpu_target(spec)
    if target is None:
        spec.add_note(
            "convert-changed",
            "the platform scales by none of the metrics, so the number stays at the minimum",
            "choose defaultOptions.autoscaling.metric",
        )
        return {"autoscaling": {"metric": "disabled", **bounds}}
    part, percent = target
    fit = min(max(round(percent * share), 1), _MOST_CPU)
    if fit != percent:
        part.add_note("convert-changed", f"{percent} % of the requested CPU becomes {fit} % of the limit")
    return {"autoscaling": {"metric": "cpu", "target": fit, **bounds}, "capacityAI": False}


def _cpu_target(spec: TrackedValue) -> tuple[TrackedValue, int] | None:
    """The field with the percentage of cpu, and the percentage."""
    if spec["targetCPUUtilizationPercentage"]:
        return _get_percentage(spec["targetCPUUtilizationPercentage"])
    for metric in spec["metrics"].items():
        if metric.peek("type") != "Resource" or metric["resource"]["name"].text() != "cpu":
            metric.ignore()
            metric.add_note("convert-left-out", f"workloads do not scale by {_describe_metric(metric)}; it is left out")
            continue
        metric["type"].text()
        resource = metric["resource"]
        target = resource["target"]
        target["type"].text()
        value = target["averageUtilization"] or resource["targetAverageUtilization"]
        if value:
            return _get_percentage(value)
    return None


def _get_percentage(part: TrackedValue) -> tuple[TrackedValue, int] | None:
    value = part.number()
    return None if value is None else (part, value)


def _describe_metric(metric: TrackedValue) -> str:
    """Kind and name of a metric, as far as it has them."""
    kind = metric.peek("type")
    holder = metric.peek(f"{kind[:1].lower()}{kind[1:]}") if isinstance(kind, str) else None
    named = holder if isinstance(holder, dict) else {}
    inner = named.get("metric")
    name = named.get("name") or (inner.get("name") if isinstance(inner, dict) else None)
    return f"{kind} {name}" if isinstance(name, str) else "this metric"
