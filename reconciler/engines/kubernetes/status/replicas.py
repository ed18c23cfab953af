"""Pods as the rows that people read of replicas, with what metrics.k8s.io measures of them; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from reconciler.engines.kubernetes.status.containers import ContainerPhase
from reconciler.engines.kubernetes.status.fields import ObjectPart, name_of, parse_quantity, read_field, read_items
from reconciler.engines.kubernetes.status.pods import PodContext, PodState, is_ours, read_pod
from reconciler.engines.reading import ContainerRow, ReplicaRow, ReplicaState
from reconciler.model.key import Key


class ReplicaSource(msgspec.Struct, frozen=True):
    """The pods of one workload at ``location``; ``metrics`` are its ``PodMetrics``, none if they are not served."""

    key: Key
    location: str
    pods: tuple[ObjectPart, ...]
    metrics: tuple[ObjectPart, ...] = ()


def list_rows(source: ReplicaSource, context: PodContext) -> list[ReplicaRow]:
    """A row for each pod that has not ended for good, ordered by name; CPU is a mean over a moment before."""
    usage = {name_of(part): part for part in source.metrics}
    states = sorted((read_pod(part, context) for part in source.pods), key=lambda pod: pod.name)
    return [_make_row(source, pod, usage.get(pod.name), context) for pod in states if not pod.over]


def state_of(pod: PodState) -> ReplicaState:
    """The state of a pod, for people."""
    if pod.lost:
        return ReplicaState.UNKNOWN
    if pod.ending:
        return ReplicaState.ENDING
    if pod.ready:
        return ReplicaState.READY
    if any(container.backoff for container in pod.containers):
        return ReplicaState.BACKOFF
    return ReplicaState.NOT_READY if pod.failing else ReplicaState.LOADING


def _make_row(source: ReplicaSource, pod: PodState, metrics: ObjectPart | None, context: PodContext) -> ReplicaRow:
    measured = read_items(metrics, "containers") if metrics is not None else ()
    ours = [container for container in measured if is_ours(str(container.get("name", "")), context.names)]
    return ReplicaRow(
        source.key,
        source.location,
        pod.name,
        pod.version,
        state_of(pod),
        tuple(
            ContainerRow(container.name, str(container.phase), container.phase is ContainerPhase.RUNNING)
            for container in pod.containers
        ),
        node=pod.node,
        restarts=pod.restarts,
        cpu=round(_sum_usage(ours, "cpu") * 1000) if ours else None,
        memory=round(_sum_usage(ours, "memory")) if ours else None,
        age=max(0.0, context.now - pod.created),
        fault=pod.ending if pod.ending and not pod.lost else pod.message,
    )


def _sum_usage(containers: Iterable[Mapping[str, object]], name: str) -> float:
    return sum(parse_quantity(read_field(container, "usage", name)) for container in containers)
