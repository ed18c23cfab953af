"""The status of a workload that runs, in the words that every engine uses (docs/platform/workload.md#status); pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from reconciler.engines.workload.deployment import Status
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.reasons import ConditionType, Reason
from reconciler.times import format_iso_time

START_SECONDS = 60.0
"""Seconds after its start, and after the initial delay of its readiness probe, for which a container that was never
ready counts as starting and not as failing: programs need time before they listen."""

IMAGE_SECONDS = 300.0
"""Seconds for which an execution waits for an image that cannot be pulled."""

IN_A_ROW = 3
"""Failed, replaced or skipped executions in a row that are a condition of the workload."""


class ExecutionState(StrEnum):
    """The status of an execution (docs/platform/workload.md#executions)."""

    INVALID = "Invalid"
    ACTIVE = "Active"
    SUCCESS = "Success"
    FAILURE = "Failure"
    REMOVED = "Removed"


class ReplicaStatus(msgspec.Struct, frozen=True):
    """A replica; ``ports`` maps each declared port to its port on this host, where it differs.

    ``message`` is why it ends, or what keeps it from being ready. ``node`` is set where several machines run replicas.
    """

    name: str
    version: int
    ready: bool
    ports: dict[str, int]
    message: str = ""
    restarts: int = 0
    node: str | msgspec.UnsetType = msgspec.UNSET


class DeploymentCondition(msgspec.Struct, frozen=True):
    """A condition of a deployment besides its health."""

    type: ConditionType
    status: str
    reason: Reason
    message: str


class RunningStatus(Status, frozen=True, rename="camel"):
    """The status of a deployment that runs; ``address`` is where its endpoint is reached without a domain."""

    address: str = ""
    replicas: tuple[ReplicaStatus, ...] = ()
    conditions: tuple[DeploymentCondition, ...] = ()


class ReplicaCount(msgspec.Struct, frozen=True):
    """The replicas of one version: all that should exist, and those that are ready."""

    total: int
    ready: int


def make_condition(condition_type: ConditionType, reason: Reason, message: str) -> DeploymentCondition:
    """A condition that is true."""
    return DeploymentCondition(condition_type, "True", reason, message)


def list_limitations(limitations: Sequence[str]) -> Iterable[DeploymentCondition]:
    """The condition for what has no effect where the workload runs; none without ``limitations``."""
    if limitations:
        yield make_condition(ConditionType.NOT_ENFORCED, Reason.NOT_ENFORCED, " ".join(limitations))


def describe_end(code: int, reason: str, message: str) -> str:
    """``ended with 137 (OutOfMemory)``, with the message of the end."""
    return f"ended with {code} ({reason})" + (f": {message}" if message else "")


def describe_rollout(desired: int, updated: int, available: int, old: int) -> str:
    """The counts of a rollout; ``old`` replicas still serve: without them, 0 available would look like an outage."""
    others = f"; {old} old replica{'' if old == 1 else 's'} available" if old else ""
    return f"{updated} of {desired} replicas updated, {min(available, desired)} available{others}"


def describe_failures(count: int, name: str, cause: str) -> Iterable[DeploymentCondition]:
    """The condition for ``count`` executions that failed in a row, the last one ``name`` for ``cause``."""
    if count >= IN_A_ROW:
        message = f"the last {count} executions failed; {name}: {cause}"
        yield make_condition(ConditionType.EXECUTIONS_FAILING, Reason.EXECUTIONS_FAILING, message)


def describe_skipped(execution: str, containers: Sequence[str], started: float, skipped: int) -> str:
    """What an execution that still runs since ``started``, in seconds since the epoch, does to the schedule."""
    running = f" ({', '.join(containers)})" if containers else ""
    return f"{execution}{running} runs since {format_iso_time(started)}, and {skipped} scheduled times were skipped"


def describe_skip(due: str, execution: str, started: float) -> str:
    """Why nothing starts at the time ``due``: ``execution`` runs since ``started``, in seconds since the epoch."""
    return f"{due} is skipped: {execution} still runs since {format_iso_time(started)}"


def describe_replaced(count: int) -> str:
    """What happened to ``count`` executions in a row."""
    return f"the last {count} executions were replaced before they ended"


def list_unfinished(message: str) -> Iterable[DeploymentCondition]:
    """The condition for executions that do not end; none for an empty ``message``."""
    if message:
        yield make_condition(ConditionType.EXECUTIONS_UNFINISHED, Reason.EXECUTIONS_UNFINISHED, message)


def ending_message(error: str, location: str = "") -> str:
    """The message of a workload that is being deleted, with the error that delays it."""
    return f"replicas are ending{f' at {location}' if location else ''}" + (f": {error}" if error else "")


def with_condition(state: bytes, condition: DeploymentCondition) -> bytes:
    """``state``, the JSON of a deployment or a volume set, with one more condition."""
    document: dict[str, Any] = msgspec.json.decode(state)
    status = document.get("status", {})
    document["status"] = {**status, "conditions": [*status.get("conditions", ()), condition]}
    return msgspec.json.encode(document)


def with_message(state: bytes, message: str) -> bytes:
    """``state``, the JSON of a deployment, with another message; unchanged if it contains no status."""
    deployment: dict[str, Any] = msgspec.json.decode(state)
    status = deployment.get("status")
    return msgspec.json.encode({**deployment, "status": {**status, "message": message}}) if status else state


def build_container_status(
    spec: ContainerSpec, count: ReplicaCount, message: str, restarts: dict[str, Any], advised: tuple[int, int] | None
) -> dict[str, Any]:
    """A container of one version; ``advised`` are the millicores and bytes that Capacity AI recommends."""
    resources = {
        "replicas": count.total,
        "replicasReady": count.ready,
        "cpu": f"{spec.cpu}m",
        "memory": _format_memory(spec.memory),
    }
    if advised is not None:
        resources["recommended"] = {"cpu": f"{advised[0]}m", "memory": _format_memory(advised[1])}
    return {
        "name": spec.name,
        "image": spec.image,
        "ready": count.ready == count.total,
        "message": message,
        "resources": resources,
        "restarts": restarts,
    }


def _format_memory(amount: int) -> str:
    return f"{amount // 2**20}Mi"
