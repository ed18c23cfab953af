"""Whether an object is as its specification wants it, by the rules of kstatus for any kind; pure.

First comes what all kinds have in common: a deletion, a generation that no controller has observed, the conditions
Reconciling and Stalled. The rules of a kind follow, and for all other kinds the condition Ready.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from reconciler.engines.kubernetes.status.fields import (
    ObjectPart,
    find_condition,
    is_false,
    is_true,
    parse_quantity,
    read_field,
    read_items,
    read_mapping,
    read_message,
    read_number,
    read_text,
)
from reconciler.reasons import ConditionType


class ReadinessState(StrEnum):
    """The four states of an object that exists."""

    IN_PROGRESS = "InProgress"
    CURRENT = "Current"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class Readiness(msgspec.Struct, frozen=True):
    """The state of an object; ``message`` is what is missing or wrong, "" for one that is current."""

    state: ReadinessState
    message: str = ""

    @property
    def current(self) -> bool:
        """Whether the object is as its specification wants it."""
        return self.state is ReadinessState.CURRENT


CURRENT = Readiness(ReadinessState.CURRENT)

_OBSERVED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "PodDisruptionBudget"})
"""Kinds whose controllers always write the generation that they have observed."""


def compute_readiness(part: ObjectPart) -> Readiness:
    """The readiness of an object of any kind, as the API server sends it."""
    if read_text(part, "metadata", "deletionTimestamp"):
        return Readiness(ReadinessState.TERMINATING, _describe_deletion(part))
    return _check_generation(part) or _check_standard_conditions(part) or _rule_of(part)(part)


def _make_waiting(message: str) -> Readiness:
    return Readiness(ReadinessState.IN_PROGRESS, message)


def _make_failed(message: str) -> Readiness:
    return Readiness(ReadinessState.FAILED, message)


def _describe_deletion(part: ObjectPart) -> str:
    conditions = read_items(part, "status", "conditions") if part.get("kind") == "Namespace" else ()
    left = [message for item in conditions if is_true(item) and (message := read_message(item, "message"))]
    finalizers = read_field(part, "metadata", "finalizers")
    if not left and isinstance(finalizers, list) and finalizers:
        left = [f"it waits for {', '.join(map(str, finalizers))}"]
    return "; ".join(["it is being deleted", *left])


def _check_generation(part: ObjectPart) -> Readiness | None:
    generation = read_number(part, "metadata", "generation")
    observed = read_number(part, "status", "observedGeneration", default=-1)
    missing = observed < 0 and part.get("kind") not in _OBSERVED
    if not generation or missing or observed == generation:
        return None
    return _make_waiting(f"its controller has not observed generation {generation} yet")


def _check_standard_conditions(part: ObjectPart) -> Readiness | None:
    for kind, state in (
        (ConditionType.RECONCILING, ReadinessState.IN_PROGRESS),
        (ConditionType.STALLED, ReadinessState.FAILED),
    ):
        condition = find_condition(part, kind)
        if is_true(condition):
            return Readiness(state, _explain_condition(condition))
    return None


def _explain_condition(condition: ObjectPart) -> str:
    """The message of a condition, or else its reason or type."""
    return (
        read_message(condition, "message")
        or read_message(condition, "reason")
        or f"{read_text(condition, 'type')} is {read_text(condition, 'status')}"
    )


def _check_counts(desired: int, counts: tuple[tuple[str, int], ...]) -> Readiness | None:
    """The first of ``counts`` that is less than ``desired``."""
    for word, count in counts:
        if count < desired:
            return _make_waiting(f"{count} of {desired} replicas {word}")
    return None


def _status_number(part: ObjectPart, name: str) -> int:
    return read_number(part, "status", name)


def _check_surplus(part: ObjectPart, desired: int) -> Readiness | None:
    surplus = _status_number(part, "replicas") - desired
    return _make_waiting(f"{surplus} replicas too many") if surplus > 0 else None


def _check_deployment(part: ObjectPart) -> Readiness:
    progress, failure = find_condition(part, "Progressing"), find_condition(part, "ReplicaFailure")
    cause = f": {read_message(failure, 'message')}" if is_true(failure) else ""
    if progress.get("reason") == "ProgressDeadlineExceeded":
        return _make_failed(_explain_condition(progress) + cause)
    desired = read_number(part, "spec", "replicas", default=1)
    names = ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas")
    words = ("created", "updated", "available", "ready")
    counts = tuple(zip(words, (_status_number(part, name) for name in names), strict=True))
    waits = _check_counts(desired, counts[:2]) or _check_surplus(part, desired) or _check_counts(desired, counts[2:])
    if waits is not None:
        return _make_waiting(waits.message + cause)
    deadline = read_number(part, "spec", "progressDeadlineSeconds", default=2**31 - 1)
    if deadline != 2**31 - 1 and not (is_true(progress) and progress.get("reason") == "NewReplicaSetAvailable"):
        return _make_waiting("its new ReplicaSet is not available yet")
    if not is_true(find_condition(part, "Available")):
        return _make_waiting("it is not available yet")
    return CURRENT


def _check_statefulset(part: ObjectPart) -> Readiness:
    if read_text(part, "spec", "updateStrategy", "type") == "OnDelete":
        return CURRENT
    desired = read_number(part, "spec", "replicas", default=1)
    counts = (("created", _status_number(part, "replicas")), ("ready", _status_number(part, "readyReplicas")))
    waits = _check_counts(desired, counts) or _check_surplus(part, desired)
    if waits is not None:
        return waits
    partition = read_number(part, "spec", "updateStrategy", "rollingUpdate", "partition")
    updated = _status_number(part, "updatedReplicas")
    if partition:
        return _check_counts(max(0, desired - partition), (("updated", updated),)) or CURRENT
    revisions = [read_text(part, "status", name) for name in ("currentRevision", "updateRevision")]
    if revisions[0] != revisions[1]:
        return _make_waiting(f"{updated} of {desired} replicas updated")
    available = read_field(part, "status", "availableReplicas")
    least = read_number(part, "spec", "minReadySeconds")
    if least and isinstance(available, int):
        return _check_counts(desired, (("available", available),)) or CURRENT
    return CURRENT


def _check_replicaset(part: ObjectPart) -> Readiness:
    desired = read_number(part, "spec", "replicas", default=1)
    failure = find_condition(part, "ReplicaFailure")
    if is_true(failure):
        return _make_waiting(_explain_condition(failure))
    names = (("created", "replicas"), ("available", "availableReplicas"), ("ready", "readyReplicas"))
    counts = tuple((word, _status_number(part, name)) for word, name in names)
    return _check_counts(desired, counts) or _check_surplus(part, desired) or CURRENT


def _check_daemonset(part: ObjectPart) -> Readiness:
    desired = read_number(part, "status", "desiredNumberScheduled", default=-1)
    if desired < 0:
        return _make_waiting("its controller has not counted its nodes yet")
    names = (
        ("created", "currentNumberScheduled"),
        ("updated", "updatedNumberScheduled"),
        ("available", "numberAvailable"),
        ("ready", "numberReady"),
    )
    return _check_counts(desired, tuple((word, _status_number(part, name)) for word, name in names)) or CURRENT


def _check_job(part: ObjectPart) -> Readiness:
    for name in ("Failed", "FailureTarget"):
        if is_true(condition := find_condition(part, name)):
            return _make_failed(_explain_condition(condition))
    if is_true(find_condition(part, "Complete")) or is_true(find_condition(part, "Suspended")):
        return CURRENT
    return CURRENT if read_text(part, "status", "startTime") else _make_waiting("it has not started yet")


def _check_pod(part: ObjectPart) -> Readiness:
    phase, ready = read_text(part, "status", "phase"), find_condition(part, ConditionType.READY)
    if phase == "Succeeded" or (phase == "Running" and is_true(ready)):
        return CURRENT
    if phase == "Failed":
        return _make_failed(read_message(part, "status", "message") or "it has failed")
    for status in read_items(part, "status", "containerStatuses"):
        if read_text(status, "state", "waiting", "reason") == "CrashLoopBackOff":
            return _make_failed(f"{read_text(status, 'name')} ends again and again")
    scheduled = find_condition(part, "PodScheduled")
    return _make_waiting(_explain_condition(scheduled) if is_false(scheduled) else "it is not ready yet")


def _check_claim(part: ObjectPart) -> Readiness:
    phase = read_text(part, "status", "phase")
    if phase == "Lost":
        return _make_failed("its volume is lost")
    if phase != "Bound":
        return _make_waiting("it has no volume yet")
    for name in ("ControllerResizeError", "NodeResizeError", "ModifyVolumeError"):
        if is_true(condition := find_condition(part, name)):
            return _make_failed(_explain_condition(condition))
    desired = parse_quantity(read_field(part, "spec", "resources", "requests", "storage"))
    if parse_quantity(read_field(part, "status", "capacity", "storage")) >= desired:
        return CURRENT
    if is_true(find_condition(part, "FileSystemResizePending")):
        return _make_waiting("its file system grows when a replica mounts it anew")
    return _make_waiting("its volume grows")


def _check_snapshot(part: ObjectPart) -> Readiness:
    if message := read_message(part, "status", "error", "message"):
        return _make_failed(message)
    return CURRENT if read_field(part, "status", "readyToUse") is True else _make_waiting("the snapshot is being taken")


def _check_service(part: ObjectPart) -> Readiness:
    if part.get("apiVersion", "").startswith("serving.knative.dev/"):
        return _check_ready_condition(part)
    if read_text(part, "spec", "type") != "LoadBalancer":
        return CURRENT
    if read_items(part, "status", "loadBalancer", "ingress") or read_field(part, "spec", "externalIPs"):
        return CURRENT
    return _make_waiting("its load balancer has no address yet")


def _check_route(part: ObjectPart) -> Readiness:
    """A route of the Gateway API: each gateway that it names has to accept it."""
    parents = read_items(part, "status", "parents")
    desired = len(read_items(part, "spec", "parentRefs"))
    for parent in parents:
        gateway = read_text(parent, "parentRef", "name")
        readiness = _check_accepted({"metadata": part.get("metadata"), "status": parent}, ("Accepted", "ResolvedRefs"))
        if not readiness.current:
            return msgspec.structs.replace(readiness, message=f"{gateway}: {readiness.message}")
    return CURRENT if len(parents) >= desired else _make_waiting("its gateway has not accepted it yet")


def _check_gateway(part: ObjectPart) -> Readiness:
    return _check_accepted(part, ("Accepted", "Programmed"))


def _check_accepted(part: ObjectPart, conditions: tuple[str, ...]) -> Readiness:
    """Whether all ``conditions`` are true, and of the newest generation."""
    generation = read_number(part, "metadata", "generation")
    for name in conditions:
        condition = find_condition(part, name)
        if not condition or read_number(condition, "observedGeneration", default=generation) < generation:
            return _make_waiting(f"{name} is not decided yet")
        if is_false(condition):
            waits = read_text(condition, "reason") in ("Pending", "AddressNotAssigned", "NoResources")
            return (_make_waiting if waits else _make_failed)(_explain_condition(condition))
        if not is_true(condition):
            return _make_waiting(_explain_condition(condition))
    return CURRENT


def _check_autoscaler(part: ObjectPart) -> Readiness:
    able, active = find_condition(part, "AbleToScale"), find_condition(part, "ScalingActive")
    if is_false(able):
        return _make_failed(_explain_condition(able))
    # With 0 replicas it is disabled on purpose; without metrics it waits for them, as after each start of a pod.
    if is_false(active) and active.get("reason") != "ScalingDisabled":
        return _make_waiting(_explain_condition(active))
    return CURRENT if able else _make_waiting("it has not read its metrics yet")


def _check_budget(part: ObjectPart) -> Readiness:
    allowed = find_condition(part, "DisruptionAllowed")
    return _make_failed(_explain_condition(allowed)) if allowed.get("reason") == "SyncFailed" else CURRENT


def _check_namespace(part: ObjectPart) -> Readiness:
    return CURRENT if read_text(part, "status", "phase") in ("", "Active") else _make_waiting("it is being deleted")


def _check_definition(part: ObjectPart) -> Readiness:
    names, established = find_condition(part, "NamesAccepted"), find_condition(part, "Established")
    if is_false(names):
        return _make_failed(_explain_condition(names))
    if is_true(established):
        return CURRENT
    failed = is_false(established) and established.get("reason") != "Installing"
    return _make_failed(_explain_condition(established)) if failed else _make_waiting("its API is not served yet")


def _check_ready_condition(part: ObjectPart) -> Readiness:
    """By the condition Ready, which Knative and most controllers of others set."""
    ready = find_condition(part, ConditionType.READY)
    if not ready:
        knative = "knative.dev/" in str(part.get("apiVersion", ""))
        return _make_waiting("its controller has not observed it yet") if knative else CURRENT
    if is_true(ready):
        return CURRENT
    return (
        _make_failed(_explain_condition(ready))
        if is_false(ready) and _fails_for_good(part)
        else _make_waiting(_explain_condition(ready))
    )


def _fails_for_good(part: ObjectPart) -> bool:
    """Whether Ready is false only after a failure: Knative has Unknown for what is not decided yet."""
    return "knative.dev/" in str(part.get("apiVersion", ""))


def _accept_object(part: ObjectPart) -> Readiness:
    return CURRENT if read_mapping(part, "metadata") else _make_waiting("it does not exist yet")


_RULES: dict[str, Callable[[ObjectPart], Readiness]] = {
    "Deployment": _check_deployment,
    "StatefulSet": _check_statefulset,
    "ReplicaSet": _check_replicaset,
    "DaemonSet": _check_daemonset,
    "Job": _check_job,
    "CronJob": _accept_object,
    "Ingress": _accept_object,
    "Pod": _check_pod,
    "PersistentVolumeClaim": _check_claim,
    "VolumeSnapshot": _check_snapshot,
    "Service": _check_service,
    "HTTPRoute": _check_route,
    "GRPCRoute": _check_route,
    "TLSRoute": _check_route,
    "TCPRoute": _check_route,
    "Gateway": _check_gateway,
    "HorizontalPodAutoscaler": _check_autoscaler,
    "PodDisruptionBudget": _check_budget,
    "Namespace": _check_namespace,
    "CustomResourceDefinition": _check_definition,
}


def _rule_of(part: ObjectPart) -> Callable[[ObjectPart], Readiness]:
    return _RULES.get(str(part.get("kind", "")), _check_ready_condition)
