"""The progress of a workload on a cluster towards its desired state, from its object and its pods; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from reconciler.engines.kubernetes.status.events import EventIndex, find_event, index_events, list_events
from reconciler.engines.kubernetes.status.fields import (
    ObjectPart,
    find_condition,
    is_true,
    read_mapping,
    read_marks,
    read_message,
    read_number,
    read_text,
    shorten_text,
)
from reconciler.engines.kubernetes.status.pods import PodContext, PodState, read_pod
from reconciler.engines.kubernetes.status.readiness import Readiness, ReadinessState, compute_readiness
from reconciler.engines.kubernetes.status.volumes import find_claim_faults
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.engines.workload.status import describe_rollout
from reconciler.model.record import Health
from reconciler.reasons import Reason

MISSING = Readiness(ReadinessState.IN_PROGRESS, "it does not exist yet")
"""The readiness of the object of a workload that was not created yet."""

_KNATIVE = "serving.knative.dev/"
_KINDS = {Type.STATEFUL: "StatefulSet", Type.CRON: "CronJob"}

_CREATION_PREFIXES = (" failed error: ", "Error creating: ")
"""What controllers write before the words of the API server that refuses a pod."""


class LiveWorkload(msgspec.Struct, frozen=True, dict=True):
    """What a cluster has of one workload.

    ``primary`` is its Deployment, StatefulSet, CronJob or Knative Service with its ``kind`` and ``apiVersion``; None if
    there is none. ``pods`` are all of them, those of ``jobs`` included; ``claims`` are those of its volumes. ``events``
    are warnings about any of these, and normal ones about claims, of v1 or of events.k8s.io. ``names`` are
    the containers of the specification by their names in pods, which cannot have every name; without any they have the
    same ones.
    """

    spec: WorkloadSpec
    primary: ObjectPart | None = None
    pods: tuple[ObjectPart, ...] = ()
    jobs: tuple[ObjectPart, ...] = ()
    claims: tuple[ObjectPart, ...] = ()
    autoscaler: ObjectPart | None = None
    events: tuple[ObjectPart, ...] = ()
    names: Mapping[str, str] = {}

    @cached_property
    def event_index(self) -> EventIndex:
        """``events`` by the object that each is about."""
        return index_events(self.events)

    @property
    def object(self) -> ObjectPart:
        """``primary`` with its kind, which the items of a list lack; empty if there is none."""
        if not self.primary or self.primary.get("kind"):
            return self.primary or {}
        kind = _KINDS.get(self.spec.type, "Deployment")
        if kind == "Deployment" and not read_mapping(self.primary, "spec", "selector"):
            return {**self.primary, "kind": "Service", "apiVersion": f"{_KNATIVE}v1"}
        return {**self.primary, "kind": kind}


class Rollout(msgspec.Struct, frozen=True):
    """Where a workload is on its way. ``wanted`` counts replicas, ``current`` are those of the newest version.

    ``readiness`` is that of its object. ``pods`` are all that exist, ``old`` those of an older version that do not end.
    ``creation_fault`` is why pods cannot be created, "" if they can. ``rolling``: there are old pods, or fewer or more
    current ones than wanted.
    """

    wanted: int
    readiness: Readiness
    pods: tuple[PodState, ...]
    current: tuple[PodState, ...]
    old: tuple[PodState, ...]
    available: int
    old_available: int
    creation_fault: str = ""

    @property
    def rolling(self) -> bool:
        """Whether replicas are replaced, missing or too many."""
        return bool(self.old) or len(self.current) != self.wanted

    @property
    def failing(self) -> tuple[PodState, ...]:
        """The pods that keep the newest version from its work."""
        return tuple(pod for pod in self.pods if pod.failing and pod not in self.old)


class LivePods(NamedTuple):
    """The pods of a workload, ordered by name, and its events."""

    states: Sequence[PodState]
    events: EventIndex


def read_rollout(live: LiveWorkload, pods: LivePods, now: float) -> Rollout:
    """The progress of a workload that has replicas at ``now``, in seconds since the epoch."""
    spec, primary = live.spec, live.object
    states, events = pods
    readiness = compute_readiness(primary) if primary else MISSING
    newest = _list_newest(states, spec, primary)
    live_pods = [pod for pod in states if not pod.ending]
    current = tuple(pod for pod in live_pods if pod.name in newest)
    count = _count_wanted(spec, primary, len(current))
    # What has ended for good is shown for as long as nothing has taken its place.
    there = [pod for pod in states if not pod.over or len(live_pods) < count]
    created = max((pod.created for pod in states), default=0.0)
    fault = _find_creation_fault(primary, events, created) if len(current) < count else ""
    enough, least = len(live_pods) >= count, spec.rollout.min_ready
    old = tuple(pod for pod in live_pods if pod.name not in newest)
    return Rollout(
        count,
        readiness,
        tuple(_name_end(pod, _ending_reason(spec, readiness, enough and pod.name in newest)) for pod in there),
        current,
        old,
        sum(_is_available(pod, least, now) for pod in current),
        sum(_is_available(pod, least, now) for pod in old),
        fault,
    )


def read_pods(live: LiveWorkload, now: float) -> LivePods:
    """The pods of a workload as they are at ``now``, in seconds since the epoch."""
    events = live.event_index
    names = live.names or {container.name: container.name for container in live.spec.containers}
    context = PodContext(now, names, events, find_claim_faults(live.claims, events))
    return LivePods(sorted((read_pod(part, context) for part in live.pods), key=lambda pod: pod.name), events)


def health_of(rollout: Rollout, spec: WorkloadSpec, error: str) -> Health:
    """Healthy once all is as wanted; Unhealthy if something fails; Loading before that, a slow start included.

    As for `kubectl rollout status`, pods that end do not count, unless the workload is suspended and all have to.
    """
    if rollout.readiness.state is ReadinessState.TERMINATING:
        return Health.DELETING
    complete = not rollout.rolling and rollout.available >= rollout.wanted and rollout.readiness.current
    busy = spec.suspended and any(not pod.over for pod in rollout.pods)
    if not error and complete and not busy:
        return Health.HEALTHY
    # A stateful replica that ends on a lost node cannot be replaced; any other one already is.
    failing = any(spec.stateful or not pod.ending for pod in rollout.failing)
    failed = rollout.readiness.state is ReadinessState.FAILED
    return Health.UNHEALTHY if error or failing or failed or rollout.creation_fault else Health.LOADING


def describe_progress(rollout: Rollout, pending: str) -> str:
    """The counts of a rollout with what fails or is waited for; "" if all is as wanted."""
    readiness, failing = rollout.readiness, rollout.failing
    counts = describe_rollout(rollout.wanted, len(rollout.current), rollout.available, rollout.old_available)
    idle = not rollout.wanted and not rollout.pods
    message = f"{pending}; {counts}" if pending else counts
    waits = next((pod for pod in rollout.current if pod.fault), None)
    cause = failing[0].fault if failing else rollout.creation_fault or (waits.fault if waits is not None else "")
    failed = readiness.message if readiness.state is ReadinessState.FAILED else ""
    if idle and failed:
        return failed
    if cause or failed:
        stuck = rollout.rolling and rollout.old and (failing or rollout.creation_fault)
        return f"{'rollout paused: ' if stuck else ''}{message}; {cause or failed}"
    if rollout.rolling or rollout.available < rollout.wanted:
        return message
    return "" if readiness.current or readiness.state is ReadinessState.TERMINATING else readiness.message


def _count_wanted(spec: WorkloadSpec, primary: ObjectPart, current: int) -> int:
    """The replicas that should exist: on the cluster, an autoscaler changes them."""
    if spec.suspended or spec.type is Type.CRON:
        return 0
    if not primary:
        return spec.replicas
    if read_text(primary, "apiVersion").startswith(_KNATIVE):
        return max(spec.replicas, current)
    return read_number(primary, "spec", "replicas", default=1)


def _list_newest(pods: Sequence[PodState], spec: WorkloadSpec, primary: ObjectPart) -> frozenset[str]:
    """The names of the pods of the wanted version that were made from the newest template."""
    template = read_marks(read_mapping(primary, "spec", "template"))
    candidates = [
        pod
        for pod in pods
        if pod.version == spec.version and all(pod.marks.get(name) == value for name, value in template.items())
    ]
    revision = read_text(primary, "status", "updateRevision")
    updated, total = (read_number(primary, "status", name) for name in ("updatedReplicas", "replicas"))
    if not revision and primary.get("kind") == "Deployment" and updated < total:
        # Another secret changes no mark of the template: what was created last has the newest one.
        last = max(candidates, key=lambda pod: pod.created, default=None)
        revision = last.revision if last is not None and updated else ""
        candidates = candidates if updated else []
    return frozenset(pod.name for pod in candidates if not revision or pod.revision in ("", revision))


def _is_available(pod: PodState, least: float, now: float) -> bool:
    # Without a least time, a clock of the cluster that is ahead of this one delays nothing.
    return pod.ready and not pod.ending and (not least or pod.ready_since + least <= now)


def _name_end(pod: PodState, reason: Reason) -> PodState:
    """``pod`` with the reason why it ends, if the cluster does not know it."""
    if pod.ending != Reason.TERMINATING:
        return pod
    message = pod.message.replace(Reason.TERMINATING, reason, 1)
    return msgspec.structs.replace(pod, ending=reason, message=message)


def _ending_reason(spec: WorkloadSpec, readiness: Readiness, surplus: bool) -> Reason:
    """Why a pod ends that the controller of the workload deletes; ``surplus``: no other one takes its place."""
    if readiness.state is ReadinessState.TERMINATING or readiness is MISSING:
        return Reason.DELETED
    if spec.suspended:
        return Reason.SUSPENDED
    return Reason.SCALED_DOWN if surplus else Reason.REPLACED


def _find_creation_fault(primary: ObjectPart, events: EventIndex, created: float) -> str:
    """Why a controller cannot create pods: a quota, or a webhook that refuses them; ``created`` is the newest pod's."""
    failure = find_condition(primary, "ReplicaFailure")
    words = read_message(failure, "message") if is_true(failure) else ""
    if not words:
        event = find_event(list_events(events, primary), "FailedCreate")
        words = event.message if event is not None and event.at > created else ""
    return f"replicas cannot be created: {strip_creation_prefix(words)}" if words else ""


def strip_creation_prefix(words: str) -> str:
    """The words of the API server in those of a controller that could not create a pod."""
    for prefix in _CREATION_PREFIXES:
        _, separator, rest = words.partition(prefix)
        if separator:
            return shorten_text(rest)
    return words
