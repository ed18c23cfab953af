"""The controllers of workloads: Deployments, StatefulSets, Jobs."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from tests.kubernetes.fake.errors import ApiError, Object

if TYPE_CHECKING:
    from tests.kubernetes.fake.controllers import Writer

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"


def hash_of(value: Any) -> str:
    """A short digest, as names of replica sets have it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def is_ready(pod: Object) -> bool:
    """Whether the pod's condition Ready is true."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def owner_reference(owner: Object) -> Object:
    """A reference to the controller of an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def rounded_share(text: Any, total: int, *, up: bool) -> int:
    """``25%`` of ``total``, or a number."""
    if isinstance(text, int):
        return text
    share = total * int(text.rstrip("%"))
    return -(-share // 100) if up else share // 100


class Workloads:
    """Creates and deletes what workloads need, and writes their status."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.overdue: set[str] = set()
        self._refusals: dict[str, str] = {}
        self._skipped: set[str] = set()
        """The uids of CronJobs whose last time was skipped."""
        self._created = 0

    def act(self) -> None:
        """Do what is next for each workload."""
        for kind, act in (
            ("Deployment", self._act_deployment),
            ("ReplicaSet", self._act_replica_set),
            ("StatefulSet", self._act_stateful_set),
            ("Job", self._act_job),
            ("CronJob", self._act_cron_job),
            ("Service", self._act_service),
        ):
            for value in self._writer.all(kind):
                if kind == "Service" and value["apiVersion"] != "v1":
                    continue
                if not value["metadata"].get("deletionTimestamp"):
                    act(value)

    def _owned(self, kind: str, owner: Object) -> list[Object]:
        return self._writer.state.storage.dependents(owner["metadata"]["uid"], self._writer.resource(kind))

    def _act_deployment(self, value: Object) -> None:
        spec = value["spec"]
        suffix = hash_of(spec["template"])
        sets = self._owned("ReplicaSet", value)
        new = next((entry for entry in sets if entry["metadata"]["labels"].get(HASH) == suffix), None)
        if spec.get("paused") and new is None:
            self._write_deployment_status(value, sets, None)
            return
        if new is None:
            self._create_replica_set(value, suffix, len(sets) + 1)
            return
        self._scale_sets(value, new, [entry for entry in sets if entry is not new])
        self._write_deployment_status(value, self._owned("ReplicaSet", value), suffix)

    def _create_replica_set(self, value: Object, suffix: str, revision: int) -> None:
        spec, metadata = value["spec"], value["metadata"]
        template = deepcopy(spec["template"])
        template["metadata"].setdefault("labels", {})[HASH] = suffix
        selector = {"matchLabels": {**(spec["selector"].get("matchLabels") or {}), HASH: suffix}}
        annotations = {REVISION: str(revision)}
        body = {
            "metadata": {
                "name": f"{metadata['name']}-{suffix}",
                "namespace": metadata["namespace"],
                "labels": template["metadata"]["labels"],
                "annotations": annotations,
                "ownerReferences": [owner_reference(value)],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        }
        self._writer.create("ReplicaSet", body)
        self._writer.patch(value, {"metadata": {"annotations": annotations}})

    def _scale_sets(self, value: Object, new: Object, old: list[Object]) -> None:
        """Scale the new set up and the old ones down, with as many ready pods as the strategy needs."""
        replicas = value["spec"]["replicas"]
        strategy = value["spec"]["strategy"]
        running = sum(entry["spec"]["replicas"] for entry in old)
        if strategy["type"] == "Recreate":
            pods = any(self._owned("Pod", entry) for entry in old)
            goal = 0 if pods or running else replicas
            surplus = running
        else:
            surge = rounded_share(strategy["rollingUpdate"]["maxSurge"], replicas, up=True)
            missing = rounded_share(strategy["rollingUpdate"]["maxUnavailable"], replicas, up=False)
            goal = min(replicas, max(replicas + surge - running, new["spec"]["replicas"]))
            ready = sum(self._ready_pods(entry) for entry in (new, *old))
            unready_old = sum(entry["spec"]["replicas"] - self._ready_pods(entry) for entry in old)
            surplus = max(ready - (replicas - missing), 0) + unready_old
        if new["spec"]["replicas"] != goal:
            self._writer.patch(new, {"spec": {"replicas": goal}})
        for entry in old:
            less = min(entry["spec"]["replicas"], surplus)
            if less:
                self._writer.patch(entry, {"spec": {"replicas": entry["spec"]["replicas"] - less}})
                surplus -= less

    def _live_pods(self, owner: Object) -> list[Object]:
        return [pod for pod in self._owned("Pod", owner) if not pod["metadata"].get("deletionTimestamp")]

    def _ready_pods(self, owner: Object) -> int:
        return sum(map(is_ready, self._owned("Pod", owner)))

    def _write_deployment_status(self, value: Object, sets: list[Object], suffix: str | None) -> None:
        replicas = value["spec"]["replicas"]
        pods = {entry["metadata"]["name"]: self._live_pods(entry) for entry in sets}
        total = sum(map(len, pods.values()))
        ready = sum(1 for group in pods.values() for pod in group if is_ready(pod))
        updated = next(
            (
                group
                for entry in sets
                if entry["metadata"]["labels"].get(HASH) == suffix
                for group in [pods[entry["metadata"]["name"]]]
            ),
            [],
        )
        complete = len(updated) == replicas == total and ready == replicas
        status: Object = {"observedGeneration": value["metadata"]["generation"]}
        for name, count in (("replicas", total), ("updatedReplicas", len(updated)), ("readyReplicas", ready)):
            status |= {name: count} if count else {}
        status |= {"availableReplicas": ready} if ready else {}
        status |= {"unavailableReplicas": replicas - ready} if replicas > ready else {}
        status["terminatingReplicas"] = 0
        status["conditions"] = self._deployment_conditions(value, ready, complete)
        for entry in sets:
            status["conditions"] += (entry.get("status") or {}).get("conditions") or []
        self._writer.write_status(self._current(value), status)

    def _deployment_conditions(self, value: Object, ready: int, complete: bool) -> list[Object]:
        spec, name = value["spec"], value["metadata"]["name"]
        missing = rounded_share(
            (spec["strategy"].get("rollingUpdate") or {}).get("maxUnavailable", 0), spec["replicas"], up=False
        )
        available = ready >= spec["replicas"] - missing
        good = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        bad = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        suffix = hash_of(spec["template"])
        progress = ("True", "ReplicaSetUpdated", f'ReplicaSet "{name}-{suffix}" is progressing.')
        if complete:
            progress = ("True", "NewReplicaSetAvailable", f'ReplicaSet "{name}-{suffix}" has successfully progressed.')
        elif f"{value['metadata']['namespace']}/{name}" in self.overdue:
            progress = ("False", "ProgressDeadlineExceeded", f'ReplicaSet "{name}-{suffix}" has timed out progressing.')
        rows = (("Available", *(good if available else bad)), ("Progressing", *progress))
        return [self._condition(value, *row) for row in rows]

    def _condition(self, value: Object, kind: str, status: str, reason: str, message: str) -> Object:
        old = {entry["type"]: entry for entry in (value.get("status") or {}).get("conditions") or ()}
        before: Object = old.get(kind, {})
        now = self._writer.state.operations.now()
        same = (before.get("status"), before.get("reason")) == (status, reason)
        times = {
            "lastUpdateTime": before.get("lastUpdateTime") if same else now,
            "lastTransitionTime": before.get("lastTransitionTime") if before.get("status") == status else now,
        }
        if value["kind"] != "Deployment":
            del times["lastUpdateTime"]
        return {"type": kind, "status": status, "reason": reason, "message": message, **times}

    def _current(self, value: Object) -> Object:
        current = self._writer.find(value["kind"], value["metadata"]["namespace"], value["metadata"]["name"])
        assert current
        return current

    def _act_replica_set(self, value: Object) -> None:
        pods = self._live_pods(value)
        count = value["spec"]["replicas"]
        self._refusals.pop(value["metadata"]["uid"], None)
        for _ in range(count - len(pods)):
            self._create_pod(value, self._pod_name(value))
        surplus = sorted(pods, key=is_ready)[: max(len(pods) - count, 0)]
        for pod in surplus:
            self._writer.delete(pod)
        ready = self._ready_pods(value)
        status: Object = {
            "observedGeneration": value["metadata"]["generation"],
            "replicas": len(self._live_pods(value)),
        }
        if ready:
            status |= {"readyReplicas": ready, "availableReplicas": ready, "fullyLabeledReplicas": ready}
        status |= {"terminatingReplicas": 0}
        if conditions := self._refusal_conditions(value):
            status["conditions"] = conditions
        self._writer.write_status(self._current(value), status)

    def _create_pod(
        self, owner: Object, name: str, labels: Object | None = None, claims: list[Object] | None = None
    ) -> None:
        template = deepcopy(owner["spec"]["template"])
        metadata = template.get("metadata") or {}
        metadata = {key: entry for key, entry in metadata.items() if key in ("labels", "annotations")}
        metadata |= {"name": name, "namespace": owner["metadata"]["namespace"]}
        metadata["generateName"] = f"{owner['metadata']['name']}-"
        metadata["ownerReferences"] = [owner_reference(owner)]
        metadata["labels"] = {**(metadata.get("labels") or {}), **(labels or {})}
        spec = template["spec"]
        if claims:
            spec["volumes"] = [*(spec.get("volumes") or []), *claims]
            spec |= {"hostname": name, "subdomain": owner["spec"].get("serviceName", "")}
        try:
            self._writer.create("Pod", {"metadata": metadata, "spec": spec})
            self._created += 1
        except ApiError as error:
            message = f"Error creating: {error.message}"
            self._refusals[owner["metadata"]["uid"]] = message
            self._writer.record_event(owner, "FailedCreate", message)

    def _pod_name(self, owner: Object) -> str:
        """The next name; the same again where the last pod was refused."""
        return f"{owner['metadata']['name']}-{hash_of([owner['metadata']['uid'], self._created])[:5]}"

    def _refusal_conditions(self, owner: Object) -> list[Object]:
        """A condition with the words of the server, where it refused the last pods of a replica set."""
        message = self._refusals.get(owner["metadata"]["uid"])
        if not message:
            return []
        return [
            self._condition(owner, "ReplicaFailure", "True", "FailedCreate", message.removeprefix("Error creating: "))
        ]

    def _act_stateful_set(self, value: Object) -> None:
        spec, name = value["spec"], value["metadata"]["name"]
        revision = f"{name}-{hash_of(spec['template'])}"
        start = (spec.get("ordinals") or {}).get("start", 0)
        names = [f"{name}-{start + number}" for number in range(spec["replicas"])]
        pods = {pod["metadata"]["name"]: pod for pod in self._owned("Pod", value)}
        self._roll_stateful_set(value, names, pods, revision)
        pods = {pod["metadata"]["name"]: pod for pod in self._owned("Pod", value)}
        ready = sum(map(is_ready, pods.values()))
        updated = sum(1 for pod in pods.values() if _revision_of(pod) == revision)
        before = value.get("status") or {}
        done = ready == spec["replicas"] == updated == len(pods)
        status: Object = {
            "observedGeneration": value["metadata"]["generation"],
            "replicas": len(pods),
            "currentRevision": revision if done or not before.get("currentRevision") else before["currentRevision"],
            "updateRevision": revision,
            "collisionCount": 0,
            "availableReplicas": ready,
        }
        status |= {"readyReplicas": ready} if ready else {}
        status |= {"updatedReplicas": updated} if updated else {}
        current = sum(1 for pod in pods.values() if _revision_of(pod) == status["currentRevision"])
        status |= {"currentReplicas": current} if current else {}
        self._writer.write_status(self._current(value), status)

    def _roll_stateful_set(self, value: Object, names: list[str], pods: dict[str, Object], revision: str) -> None:
        parallel = value["spec"]["podManagementPolicy"] == "Parallel"
        for name in names:
            pod = pods.get(name)
            if pod is None:
                self._create_member(value, name, revision)
            if not parallel and (pod is None or not is_ready(pod)):
                break
        surplus = [pod for name, pod in sorted(pods.items(), reverse=True) if name not in names]
        for pod in surplus:
            if not pod["metadata"].get("deletionTimestamp"):
                self._writer.delete(pod)
        if surplus or value["spec"]["updateStrategy"]["type"] == "OnDelete":
            return
        partition = (value["spec"]["updateStrategy"].get("rollingUpdate") or {}).get("partition", 0)
        for number, name in reversed([*enumerate(names)]):
            pod = pods.get(name)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                return
            if number >= partition and _revision_of(pod) != revision:
                self._writer.delete(pod)
                return
            if not is_ready(pod):
                return

    def _create_member(self, value: Object, name: str, revision: str) -> None:
        claims = []
        for template in value["spec"].get("volumeClaimTemplates") or ():
            claim = f"{template['metadata']['name']}-{name}"
            metadata = {**template["metadata"], "name": claim, "namespace": value["metadata"]["namespace"]}
            selected = value["spec"]["selector"].get("matchLabels") or {}
            metadata["labels"] = {**(template["metadata"].get("labels") or {}), **selected}
            self._writer.create("PersistentVolumeClaim", {"metadata": metadata, "spec": template["spec"]})
            source = {"persistentVolumeClaim": {"claimName": claim}}
            claims.append({"name": template["metadata"]["name"], **source})
        labels = {
            "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": name.rpartition("-")[2],
        }
        self._create_pod(value, name, labels, claims)

    def _act_job(self, value: Object) -> None:
        spec, status = value["spec"], value.get("status") or {}
        if spec.get("suspend") or _is_over(value):
            return
        pods = self._owned("Pod", value)
        phases = [(pod.get("status") or {}).get("phase") for pod in pods]
        succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
        active = len(pods) - succeeded - failed
        completions = spec.get("completions") or 1
        over = failed > spec["backoffLimit"]
        if not over and succeeded + active < completions and active < spec["parallelism"]:
            self._create_pod(value, self._pod_name(value))
            return
        now = self._writer.state.operations.now()
        new: Object = {"startTime": status.get("startTime") or now, "ready": sum(map(is_ready, pods))}
        new |= {"terminating": 0, "uncountedTerminatedPods": {}}
        for name, count in (("active", active), ("succeeded", succeeded), ("failed", failed)):
            new |= {name: count} if count else {}
        if succeeded >= completions:
            new |= {"completionTime": now, "conditions": _job_conditions("SuccessCriteriaMet", "Complete", now)}
        elif over:
            new["conditions"] = _job_conditions("FailureTarget", "Failed", now)
        self._writer.write_status(self._current(value), new)

    def run_cron_job(self, namespace: str, name: str) -> str:
        """Create the Job that is due; its name, "" if the policy forbids it as long as another one runs."""
        cron = self._writer.find("CronJob", namespace, name)
        assert cron, f"no CronJob {namespace}/{name}"
        policy, running = cron["spec"]["concurrencyPolicy"], self._list_running(cron)
        if policy == "Forbid" and running:
            self._skipped.add(cron["metadata"]["uid"])
            return ""
        for job in running if policy == "Replace" else ():
            self._writer.delete(job)
        return self._create_job(cron)

    def _list_running(self, cron: Object) -> list[Object]:
        """Its Jobs that have not ended; one on demand is none of its own."""
        jobs = [job for job in self._owned("Job", cron) if not job["metadata"].get("deletionTimestamp")]
        return [job for job in jobs if not _is_over(job)]

    def _act_cron_job(self, value: Object) -> None:
        """As the controller does: a time that was skipped comes once nothing runs any more."""
        if value["metadata"]["uid"] in self._skipped and not self._list_running(value):
            self._skipped.discard(value["metadata"]["uid"])
            self._create_job(value)

    def _create_job(self, cron: Object) -> str:
        namespace, name = cron["metadata"]["namespace"], cron["metadata"]["name"]
        template = deepcopy(cron["spec"]["jobTemplate"])
        job = f"{name}-{self._writer.state.storage.revision + 29000000}"
        metadata = {**(template.get("metadata") or {}), "name": job, "namespace": namespace}
        metadata["ownerReferences"] = [owner_reference(cron)]
        self._writer.create("Job", {"metadata": metadata, "spec": template["spec"]})
        now = self._writer.state.operations.now()
        self._writer.write_status(self._current(cron), {**(cron.get("status") or {}), "lastScheduleTime": now})
        return job

    def _act_service(self, value: Object) -> None:
        if value["spec"]["type"] == "LoadBalancer":
            ingress = [{"ip": "192.0.2.10", "ipMode": "VIP"}]
            self._writer.write_status(value, {"loadBalancer": {"ingress": ingress}})


def _is_over(job: Object) -> bool:
    """Whether a Job has succeeded or failed."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(entry["type"] in ("Complete", "Failed") for entry in conditions)


def _revision_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get("controller-revision-hash", ""))


def _job_conditions(first: str, last: str, now: str) -> list[Object]:
    """The two conditions of a job that is over."""
    reason, message = "CompletionsReached", "Reached expected number of succeeded pods"
    if last == "Failed":
        reason, message = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    times = {"lastProbeTime": now, "lastTransitionTime": now}
    return [{"type": kind, "status": "True", "reason": reason, "message": message, **times} for kind in (first, last)]
