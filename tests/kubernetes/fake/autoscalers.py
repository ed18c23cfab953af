"""The controller of autoscalers, for workloads of which a test says what their pods use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kubernetes.fake.errors import Object

if TYPE_CHECKING:
    from tests.kubernetes.fake.controllers import Writer


class Autoscalers:
    """Scales what a HorizontalPodAutoscaler names by the CPU of its pods, up only: down takes five minutes."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.usage: dict[str, int] = {}
        """``NAMESPACE/NAME`` of a workload → the millicores that each of its pods uses."""

    def act(self) -> None:
        """Do what is next for each autoscaler whose workload has a usage."""
        for scaler in self._writer.all("HorizontalPodAutoscaler"):
            reference, namespace = scaler["spec"]["scaleTargetRef"], scaler["metadata"]["namespace"]
            used = self.usage.get(f"{namespace}/{reference['name']}")
            target = self._writer.find(reference["kind"], namespace, reference["name"])
            if used is not None and target is not None:
                self._scale(scaler, target, used)

    def _scale(self, scaler: Object, target: Object, used: int) -> None:
        spec, current = scaler["spec"], target["spec"]["replicas"]
        [container] = target["spec"]["template"]["spec"]["containers"]
        percent = used * 100 // int(container["resources"]["requests"]["cpu"].removesuffix("m"))
        wanted = -(-current * percent // spec["metrics"][0]["resource"]["target"]["averageUtilization"])
        desired = max(current, min(wanted, spec["maxReplicas"]))
        measured = {"name": "cpu", "current": {"averageUtilization": percent, "averageValue": f"{used}m"}}
        status = {
            "currentReplicas": current,
            "desiredReplicas": desired,
            "currentMetrics": [{"type": "Resource", "resource": measured}],
            "conditions": [{"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}],
        }
        if desired != current:
            self._writer.patch(target, {"spec": {"replicas": desired}}, "scale")
        self._writer.write_status(scaler, status)
