"""Pods that are placed, run, fail and end as a test scripts it, and claims that are bound."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.kubernetes.cluster.pod import fails
from tests.kubernetes.fake.errors import Object
from tests.kubernetes.fake.pods import EndedRun, PodScript

if TYPE_CHECKING:
    from tests.kubernetes.fake.controllers import Writer

NODE = "node-1"
REASONS = {"PullError": "ImagePullBackOff", "Crash": "CrashLoopBackOff"}


class Kubelet:
    """Scheduler, kubelet, and the provisioner of volumes and snapshots."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.takes_snapshots = False
        """Whether a controller takes snapshots, at once."""
        self.restores_snapshots = True
        """Whether a claim that is made of one gets a volume."""

    def act(self) -> None:
        """Do what is next for each pod and claim."""
        for claim in self._writer.all("PersistentVolumeClaim"):
            self._bind_claim(claim)
        for volume in self._writer.all("PersistentVolume"):
            self._reclaim_volume(volume)
        for snapshot in self._writer.all("VolumeSnapshot") if self.takes_snapshots else ():
            self._take_snapshot(snapshot)
        for pod in self._writer.all("Pod"):
            self._run_pod(pod)

    def _run_pod(self, pod: Object) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            if not pod["metadata"].get("finalizers") and self._writer.state.pods.may_end(pod, time.time()):
                self._run_pre_stop(pod)
                self._writer.delete(pod, grace=0)
            return
        script = self._writer.state.pods.script_of(pod)
        if script.state == "Unschedulable" or not self._claims_are_there(pod):
            self._mark_unschedulable(pod, script)
            return
        if not pod["spec"].get("nodeName"):
            self._bind_pod(pod)
            return
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return
        self._write_status(pod, script)

    def _run_pre_stop(self, pod: Object) -> None:
        for container in pod["spec"]["containers"]:
            if fails((container.get("lifecycle") or {}).get("preStop") or {}):
                self._writer.record_event(pod, "FailedPreStopHook", "PreStopHook failed", container["name"])

    def _claims_are_there(self, pod: Object) -> bool:
        names = [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["spec"].get("volumes") or ()
            if "persistentVolumeClaim" in volume
        ]
        claims = [self._writer.find("PersistentVolumeClaim", pod["metadata"]["namespace"], name) for name in names]
        return all(claim is not None for claim in claims)

    def _bind_pod(self, pod: Object) -> None:
        """As the binding subresource does, which no manager tracks."""
        resource = self._writer.resource("Pod")
        new = {**pod, "spec": {**pod["spec"], "nodeName": NODE}}
        self._writer.state.storage.write(resource, new, pod)

    def _mark_unschedulable(self, pod: Object, script: PodScript) -> None:
        missing = "0/1 nodes are available: persistentvolumeclaim not found."
        message = script.message or missing
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._writer.record_event(pod, "FailedScheduling", message)
        self._write(pod, {"phase": "Pending", "conditions": [condition], "qosClass": "BestEffort"})

    def _write_status(self, pod: Object, script: PodScript) -> None:
        ready = script.state == "Running"
        for container in pod["spec"]["containers"]:
            self._record_trouble(pod, container, script)
        phase = {"PullError": "Pending", "Succeeded": "Succeeded", "Failed": "Failed"}.get(script.state, "Running")
        containers = pod["spec"]["containers"]
        status: Object = {
            "phase": phase,
            "conditions": [
                self._condition("PodReadyToStartContainers", True),
                self._condition("Initialized", True),
                self._condition("Ready", ready, containers),
                self._condition("ContainersReady", ready, containers),
                self._condition("PodScheduled", True),
            ],
            "hostIP": "10.0.0.1",
            "podIP": "10.244.0.2",
            "qosClass": "BestEffort",
            "startTime": (pod.get("status") or {}).get("startTime") or self._now(),
            "containerStatuses": [self._container_status(pod, container, script) for container in containers],
        }
        self._write(pod, status)

    def _record_trouble(self, pod: Object, container: Object, script: PodScript) -> None:
        name, image = container["name"], container["image"]
        if script.state == "PullError":
            self._writer.record_event(pod, "Failed", f'Failed to pull image "{image}": {script.message}', name)
        words, starting = _describe_probe(container), self._writer.state.pods.is_starting(pod)
        if script.state == "Unready" and words and not starting:
            self._writer.record_event(pod, "Unhealthy", f"Readiness probe failed: {words}", name)
        if script.state == "Crash":
            text = f"Back-off restarting failed container {name} in pod {pod['metadata']['name']}"
            self._writer.record_event(pod, "BackOff", text, name)

    def _condition(self, kind: str, good: bool, containers: list[Object] | None = None) -> Object:
        condition = {"type": kind, "status": "True" if good else "False", "lastTransitionTime": None}
        if not good and containers is not None:
            names = " ".join(container["name"] for container in containers)
            condition |= {"reason": "ContainersNotReady", "message": f"containers with unready status: [{names}]"}
        return condition

    def _container_status(self, pod: Object, container: Object, script: PodScript) -> Object:
        old = (pod.get("status") or {}).get("containerStatuses") or []
        before: Object = next((entry for entry in old if entry["name"] == container["name"]), {})
        ended = self._writer.state.pods.ends.get(pod["metadata"]["uid"], EndedRun())
        if before.get("restartCount", 0) < ended.count:
            before = {}
        started = ((before.get("state") or {}).get("running") or {}).get("startedAt") or self._now()
        status: Object = {
            "name": container["name"],
            "image": container["image"],
            "imageID": f"sha256:{container['image']}",
            "ready": script.state == "Running",
            "restartCount": script.restarts,
            "started": script.state in ("Running", "Unready"),
        }
        if script.state in REASONS:
            message = script.message if script.state == "PullError" else "back-off 5m0s restarting failed container"
            status["state"] = {"waiting": {"reason": REASONS[script.state], "message": message}}
        elif script.state in ("Succeeded", "Failed"):
            status["state"] = {"terminated": self._termination(script, 0 if script.state == "Succeeded" else None)}
        else:
            status["state"] = {"running": {"startedAt": started}}
        if ended.count and script.state != "Crash":
            status["restartCount"] = ended.count
            over = {**self._termination(script, ended.code), "startedAt": ended.begun}
            status["lastState"] = before.get("lastState") or {"terminated": over}
        if script.state == "Crash":
            status["restartCount"] = script.restarts or 3
            status["lastState"] = before.get("lastState") or {"terminated": self._termination(script, None)}
        return status

    def _termination(self, script: PodScript, exit_code: int | None) -> Object:
        code = script.exit_code if exit_code is None else exit_code
        termination: Object = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        if script.message:
            termination["message"] = script.message
        return termination | {"startedAt": self._now(), "finishedAt": self._now()}

    def _write(self, pod: Object, status: Object) -> None:
        """Write the status; times of conditions change only with them."""
        old = {entry["type"]: entry for entry in (pod.get("status") or {}).get("conditions") or ()}
        for condition in status["conditions"]:
            before: Object = old.get(condition["type"], {})
            same = before.get("status") == condition["status"]
            condition["lastTransitionTime"] = before["lastTransitionTime"] if same else self._now()
        self._writer.write_status(pod, status)

    def _now(self) -> str:
        return self._writer.state.operations.now()

    def _bind_claim(self, claim: Object) -> None:
        """Bind a claim to a volume; a storage class named `never` has none."""
        name = claim["spec"].get("storageClassName")
        if claim["metadata"].get("deletionTimestamp") or name == "never":
            return
        if claim["spec"].get("dataSource") and not self.restores_snapshots:
            return
        size = claim["spec"]["resources"]["requests"]["storage"]
        status: dict[str, Any] = dict(claim.get("status") or {})
        if status.get("phase") != "Bound" and claim["spec"].get("volumeName"):
            volume = self._writer.find("PersistentVolume", "", claim["spec"]["volumeName"])
            if volume is None or volume["spec"]["claimRef"].get("uid") != claim["metadata"]["uid"]:
                return  # the volume belongs to another claim
        elif status.get("phase") != "Bound":
            self._create_volume(claim, size)
        elif status["capacity"]["storage"] == size:
            return
        status |= {"phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": {"storage": size}}
        current = self._writer.find("PersistentVolumeClaim", claim["metadata"]["namespace"], claim["metadata"]["name"])
        assert current
        self._writer.write_status(current, status)

    def _reclaim_volume(self, volume: Object) -> None:
        """Delete a volume whose claim is gone, unless it is retained."""
        reference = volume["spec"].get("claimRef") or {}
        claim = self._writer.find("PersistentVolumeClaim", reference.get("namespace", ""), reference.get("name", ""))
        if claim is not None and claim["metadata"]["uid"] == reference.get("uid"):
            return
        if volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
            self._writer.delete(volume)

    def _take_snapshot(self, snapshot: Object) -> None:
        if not (snapshot.get("status") or {}).get("readyToUse"):
            self._writer.write_status(
                snapshot, {"readyToUse": True, "creationTime": self._now(), "restoreSize": "10Gi"}
            )

    def _create_volume(self, claim: Object, size: str) -> None:
        metadata = claim["metadata"]
        volume = f"pvc-{metadata['uid']}"
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": metadata["uid"]}
        reference |= {"namespace": metadata["namespace"], "name": metadata["name"]}
        spec = {
            "capacity": {"storage": size},
            "accessModes": claim["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": reference,
            "hostPath": {"path": f"/volumes/{volume}"},
        }
        if claim["spec"].get("storageClassName"):
            spec["storageClassName"] = claim["spec"]["storageClassName"]
        self._writer.create("PersistentVolume", {"metadata": {"name": volume}, "spec": spec})
        self._writer.patch(claim, {"spec": {"volumeName": volume}})


def _describe_probe(container: Object) -> str:
    """What the readiness probe of a container meets that is not ready; "" without one."""
    probe = container.get("readinessProbe") or {}
    return "HTTP probe failed with statuscode: 500" if "httpGet" in probe else "as scripted" if probe else ""
