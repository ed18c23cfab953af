"""Deployments in the shape of docs/platform/workload.md#deployments, and recorded ones that do not run: pure."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.model.key import Key
from reconciler.model.kinds.workload import Container, Specification, declared_ports, replicas_at
from reconciler.model.record import Health

NOTHING_RUNS = "recorded only: nothing runs at this location"
"""The message of a deployment that is only recorded."""

MINUTE_DIGITS = 8
"""The digits of a minute since the epoch in this century."""


class DeploymentTarget(msgspec.Struct, frozen=True):
    """Where a workload is deployed: the location, the alias and version of its GVC, the domain of endpoints."""

    location: str
    alias: str
    gvc_version: int
    endpoint_domain: str


class Execution(msgspec.Struct, frozen=True, rename="camel"):
    """One execution of a cron workload; times are ISO 8601, UTC."""

    name: str
    workload_version: int
    status: str
    start_time: str
    completion_time: str
    conditions: tuple[dict[str, str], ...] = ()
    replica: str = ""


class Version(msgspec.Struct, frozen=True):
    """One version of a workload as deployed."""

    name: str
    created: str
    workload: int
    gvc: int
    ready: bool
    message: str
    containers: dict[str, dict[str, Any]]


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a deployment."""

    endpoint: str
    ready: bool
    deploying: bool
    last_processed_version: int
    expected_deployment_version: int
    message: str
    versions: tuple[Version, ...]
    job_executions: tuple[Execution, ...] = ()


class ResolvedImage(msgspec.Struct, frozen=True):
    """An image as the manifest names it, and the digest that runs."""

    image: str
    digest: str


class ResolvedImages(msgspec.Struct, frozen=True, rename="camel"):
    """What the images of the newest version mean, each once, and why images of it are missing.

    ``resolved_at`` is when the last of them was resolved, ISO 8601; "" before that.
    """

    images: tuple[ResolvedImage, ...] = ()
    resolved_at: str = ""
    error_messages: tuple[str, ...] = ()


class WorkloadStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of the workload's own status that comes from one location.

    There are no ``resolved_images`` where nothing runs from images.
    """

    canonical_endpoint: str
    endpoint: str
    internal_name: str
    replica_internal_names: tuple[str, ...]
    health: str
    current_replica_count: int
    domain_endpoints: tuple[str, ...] = ()
    resolved_images: ResolvedImages | msgspec.UnsetType = msgspec.UNSET


class Deployment(msgspec.Struct, frozen=True):
    """A workload at a location; the deployment is named after the location."""

    name: str
    status: Status
    workload: WorkloadStatus


class HostNames(msgspec.Struct, frozen=True):
    """The host names of a workload: at one location, at all of them, inside, and of each replica with an identity.

    ``endpoint`` and ``canonical`` are "" for a workload that serves nothing.
    """

    endpoint: str
    canonical: str
    internal: str
    replicas: tuple[str, ...]


def build_host_names(key: Key, target: DeploymentTarget, served: bool, identities: int) -> HostNames:
    """The host names of ``key`` at ``target``; ``identities`` is the number of its replicas that have one."""
    host = f"{key.name}-{target.alias}"
    return HostNames(
        f"{host}.{target.location}.{target.endpoint_domain}" if served else "",
        f"{host}.{target.endpoint_domain}" if served else "",
        f"{key.name}.{key.gvc}.platform.local",
        tuple(f"{key.name}-{index}.{key.name}" for index in range(identities)),
    )


def read_deployment(state: bytes) -> Deployment | None:
    """The deployment in ``state``; None if it contains none."""
    try:
        return msgspec.json.decode(state, type=Deployment)
    except msgspec.DecodeError:
        return None


def build_deployment(
    key: Key, version: int, spec: Specification, target: DeploymentTarget, created: str, past: Deployment | None
) -> Deployment:
    """The recorded deployment of ``key`` at ``target`` in ``version``, with all its replicas and none of them ready.

    Keeps from ``past`` the executions and the creation time of this version.
    """
    replicas = replicas_at(spec, target.location)
    served = spec.type != "cron" and any(map(declared_ports, spec.containers))
    names = build_host_names(key, target, served, replicas if spec.type == "stateful" else 0)
    creation_time = (
        next((old.created for old in past.status.versions if old.workload == version), created) if past else created
    )
    containers = {container.name: _build_container_status(container, replicas) for container in spec.containers}
    entry = Version(
        f"{key.name}-{version:05d}", creation_time, version, target.gvc_version, not replicas, "", containers
    )
    listed = past.status.job_executions if past and spec.job else ()
    # What another engine ran here does not run any more.
    executions = tuple(execution for execution in listed if execution.completion_time)
    status = Status(names.endpoint, not replicas, False, version, version, NOTHING_RUNS, (entry,), executions)
    own = WorkloadStatus(names.canonical, names.canonical, names.internal, names.replicas, str(Health.RECORDED), 0)
    return Deployment(target.location, status, own)


def add_run(deployment: Deployment, key: Key, at: str, limit: int) -> tuple[Deployment, Execution]:
    """``deployment`` with a successful execution on demand at ``at``; the last ``limit`` executions remain."""
    suffixes = (job_execution.name.rpartition("-")[2] for job_execution in deployment.status.job_executions)
    # Executions at scheduled times end in their minute, which has more digits than a number.
    numbers = (int(suffix) for suffix in suffixes if suffix.isdecimal() and len(suffix) < MINUTE_DIGITS)
    return add_execution(deployment, f"{key.name}-{max(numbers, default=0) + 1}", at, limit)


def add_execution(deployment: Deployment, name: str, at: str, limit: int) -> tuple[Deployment, Execution]:
    """``deployment`` with one more successful execution at ``at``; the last ``limit`` executions remain."""
    past = deployment.status.job_executions
    complete = {"type": "Complete", "status": "True", "message": "", "reason": "", "lastTransitionTime": at}
    version = deployment.status.last_processed_version
    execution = Execution(name, version, "Success", at, at, (complete,), f"{name}-0")
    status = msgspec.structs.replace(deployment.status, job_executions=(*past, execution)[-limit:])
    return msgspec.structs.replace(deployment, status=status), execution


def _build_container_status(container: Container, replicas: int) -> dict[str, Any]:
    return {
        "name": container.name,
        "image": container.image,
        "ready": not replicas,
        "message": "",
        "resources": {
            "replicas": replicas,
            "replicasReady": 0,
            "cpu": container.cpu,
            "memory": container.memory,
        },
        "restarts": {"count": 0},
    }
