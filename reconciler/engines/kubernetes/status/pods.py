"""A pod as a replica: whether it is ready, and why it is not, in the platform's words; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from reconciler.engines.kubernetes.status.containers import (
    ContainerInput,
    ContainerPhase,
    ContainerState,
    describe_waiting,
    read_container,
)
from reconciler.engines.kubernetes.status.events import ClusterEvent, EventIndex, find_event, list_events
from reconciler.engines.kubernetes.status.fields import (
    GVC_VERSION,
    ObjectPart,
    find_condition,
    is_false,
    is_true,
    name_of,
    read_items,
    read_mapping,
    read_marks,
    read_message,
    read_number,
    read_seconds,
    read_text,
    read_version,
)
from reconciler.engines.workload.status import START_SECONDS, describe_end
from reconciler.model.platform import RESERVED_CONTAINER_PREFIXES, RESERVED_CONTAINERS
from reconciler.reasons import ConditionType, Reason

EVENT_SECONDS = 600.0
"""Seconds for which an event about a volume or a network explains why a pod waits: kubelets repeat it sooner."""


class ClaimFault(msgspec.Struct, frozen=True):
    """Why a claim has no volume; it is ``failing`` if that is no short wait."""

    message: str
    failing: bool = False


class PodContext(msgspec.Struct, frozen=True):
    """What is known besides a pod; ``now`` is in seconds since the epoch.

    ``names`` are the containers of the specification, by their names in the pod: others were injected. Without names,
    all but those of known sidecars count. ``claims`` are those without a volume, by name.
    """

    now: float
    names: Mapping[str, str] = {}
    events: EventIndex = {}
    claims: Mapping[str, ClaimFault] = {}


class PodState(msgspec.Struct, frozen=True):
    """One pod at a moment; times are in seconds since the epoch.

    ``message`` is why it ends or is not ready, "" if nothing is wrong. ``ending`` is why it ends, or has ended; "" for
    all others. It is ``failing`` if it is not ready and that is no slow start, ``lost`` if its node does not answer,
    and ``over`` once it has ended for good. ``revision`` is the hash that the controller of the workload gave it,
    ``marks`` are the labels and annotations of this program. ``late_at`` are the times at which what it waits for
    counts as failing.
    """

    name: str
    version: int
    ready: bool
    phase: str
    containers: tuple[ContainerState, ...]
    restarts: int = 0
    node: str = ""
    message: str = ""
    ending: str = ""
    failing: bool = False
    lost: bool = False
    over: bool = False
    created: float = 0.0
    ready_since: float = 0.0
    gvc_version: int = 0
    revision: str = ""
    marks: dict[str, str] = {}
    late_at: tuple[float, ...] = ()

    @property
    def fault(self) -> str:
        """``db-0: main: ended with 1 (Error)``: its name and what is wrong; "" if nothing is."""
        container = next((container for container in self.containers if container.message), None)
        if container is not None and container.message == self.message:
            return f"{self.name}: {container.name}: {self.message}"
        return f"{self.name}: {self.message}" if self.message else ""


def read_pod(part: ObjectPart, context: PodContext) -> PodState:
    """The state of a pod, as the API server sends it."""
    events = list_events(context.events, part, "Pod")
    containers = tuple(_read_containers(part, context, events))
    ready, labels = find_condition(part, ConditionType.READY), read_mapping(part, "metadata", "labels")
    state = PodState(
        name=name_of(part),
        version=read_version(part),
        ready=is_true(ready) and not read_text(part, "metadata", "deletionTimestamp"),
        phase=read_text(part, "status", "phase"),
        containers=containers,
        restarts=sum(container.restarts for container in containers),
        node=read_text(part, "spec", "nodeName"),
        lost=_is_lost(part),
        over=read_text(part, "status", "phase") in ("Failed", "Succeeded"),
        created=read_seconds(part, "metadata", "creationTimestamp"),
        ready_since=read_seconds(ready, "lastTransitionTime") if is_true(ready) else 0.0,
        gvc_version=read_version(part, GVC_VERSION),
        revision=read_text(labels, "controller-revision-hash") or read_text(labels, "pod-template-hash"),
        marks=read_marks(part),
        late_at=() if is_true(ready) else tuple(_list_late_times(part, containers)),
    )
    return _explain_pod(state, part, context, events)


def _list_late_times(part: ObjectPart, containers: Sequence[ContainerState]) -> Iterator[float]:
    """When a pod that is not ready counts as failing for what it waits for now."""
    yield read_seconds(part, "metadata", "creationTimestamp") + START_SECONDS
    scheduled = find_condition(part, "PodScheduled")
    if is_false(scheduled):
        yield read_seconds(scheduled, "lastTransitionTime") + START_SECONDS
    yield from (container.late_at for container in containers if container.late_at)


def is_ours(container: str, names: Collection[str]) -> bool:
    """Whether a container of that name belongs to the workload, and was not injected by another program."""
    if names:
        return container in names
    return container not in RESERVED_CONTAINERS and not container.startswith(RESERVED_CONTAINER_PREFIXES)


def list_parts(part: ObjectPart, names: Collection[str]) -> Sequence[ObjectPart]:
    """The containers in the specification of a pod that are those of the workload.

    An older version may have had other containers: if none has one of ``names``, all but known sidecars count.
    """
    parts = read_items(part, "spec", "containers")
    ours = [container for container in parts if is_ours(read_text(container, "name"), names)]
    return ours or [container for container in parts if is_ours(read_text(container, "name"), ())]


def _read_containers(part: ObjectPart, context: PodContext, events: Sequence[ClusterEvent]) -> Iterator[ContainerState]:
    statuses = {read_text(status, "name"): status for status in read_items(part, "status", "containerStatuses")}
    changed = read_seconds(find_condition(part, ConditionType.READY), "lastTransitionTime")
    for container in list_parts(part, context.names):
        name = read_text(container, "name")
        own = [event for event in events if event.container == name]
        shown = context.names.get(name, name)
        yield read_container(ContainerInput(shown, container, statuses.get(name, {}), own, changed, context.now))


def _is_lost(part: ObjectPart) -> bool:
    """Whether the node of a pod does not answer: then nothing is known of its containers."""
    if read_text(part, "status", "phase") == "Unknown" or read_text(part, "status", "reason") == "NodeLost":
        return True
    ready, containers = find_condition(part, ConditionType.READY), find_condition(part, "ContainersReady")
    # The controller of nodes marks the pods of a lost node as not ready, without a reason.
    gates = read_items(part, "spec", "readinessGates")
    return is_false(ready) and is_true(containers) and not read_text(ready, "reason") and not gates


def _explain_pod(state: PodState, part: ObjectPart, context: PodContext, events: Sequence[ClusterEvent]) -> PodState:
    """``state`` with why the pod ends or is not ready."""
    replace = msgspec.structs.replace
    lost = f"the node {state.node or 'of the replica'} does not answer" if state.lost else ""
    if state.over:
        reason, message = _explain_end(state, part)
        return replace(state, ending=reason, message=message)
    if read_text(part, "metadata", "deletionTimestamp"):
        ending = _ending_reason(part)
        words = f"ending: {ending}" + (f"; {lost}" if lost else "")
        return replace(state, ending=ending, message=words, failing=state.lost)
    if lost:
        return replace(state, message=lost, failing=True)
    if state.ready:
        return state
    message, failing = _explain_wait(state, part, context, events)
    if message:
        return replace(state, message=message, failing=failing)
    container = next((container for container in state.containers if container.message), None)
    return replace(state, message=container.message, failing=container.failing) if container is not None else state


def _ending_reason(part: ObjectPart) -> str:
    """Why a pod is being deleted, if the cluster knows: a drained or lost node, or a more important pod."""
    disruption = find_condition(part, "DisruptionTarget")
    return Reason.EVICTED if is_true(disruption) else Reason.TERMINATING


def _explain_end(state: PodState, part: ObjectPart) -> tuple[str, str]:
    """Reason and words of a pod that has ended for good."""
    reason, message = read_text(part, "status", "reason"), read_message(part, "status", "message")
    if reason == Reason.DEADLINE_EXCEEDED:
        return Reason.DEADLINE_EXCEEDED, "it ran longer than activeDeadlineSeconds"
    if reason:
        return reason, f"{reason}: {message}" if message else reason
    ends = (container.last for container in state.containers if container.last is not None)
    failed = next((end for end in ends if end.code), None)
    if failed is not None:
        return failed.reason, failed.words
    return (Reason.COMPLETED, "") if state.phase == "Succeeded" else (Reason.ERROR, message or "it has failed")


def _explain_wait(
    state: PodState, part: ObjectPart, context: PodContext, events: Sequence[ClusterEvent]
) -> tuple[str, bool]:
    """Why a pod cannot start yet, and whether that is a failure; empty if its containers say more."""
    late = context.now - state.created >= START_SECONDS
    scheduled = find_condition(part, "PodScheduled")
    if is_false(scheduled):
        return _explain_unscheduled(part, scheduled, context)
    if (initial := _explain_initial(part)) is not None:
        return initial
    if any(container.message or container.phase is not ContainerPhase.WAITING for container in state.containers):
        return _explain_others(part, state, late) or _explain_gates(part)
    events = [event for event in events if event.at + EVENT_SECONDS >= context.now]
    mount = find_event(events, "FailedMount", "FailedAttachVolume", "FailedMapVolume")
    if mount is not None:
        return f"{Reason.VOLUME_UNAVAILABLE}: {mount.message}", late
    sandbox = find_event(events, "FailedCreatePodSandBox", "FailedCreatePodContainer", "NetworkNotReady")
    return (f"{Reason.START_FAILED}: {sandbox.message}", late) if sandbox is not None else ("", False)


def _explain_unscheduled(part: ObjectPart, scheduled: ObjectPart, context: PodContext) -> tuple[str, bool]:
    words = read_message(scheduled, "message") or read_text(scheduled, "reason")
    since = read_seconds(scheduled, "lastTransitionTime") or context.now
    names = (read_text(volume, "persistentVolumeClaim", "claimName") for volume in read_items(part, "spec", "volumes"))
    pending = [(name, context.claims[name]) for name in names if name in context.claims]
    if pending:
        claims = "; ".join(f"the claim {name} is pending: {fault.message}" for name, fault in pending)
        words = f"{words}; {claims}"
    late = context.now - since >= START_SECONDS
    return f"it is not scheduled: {words}", late or any(fault.failing for _, fault in pending)


def _explain_initial(part: ObjectPart) -> tuple[str, bool] | None:
    """What a container that runs before those of the workload waits for; None if all are done."""
    restartable = {
        read_text(container, "name")
        for container in read_items(part, "spec", "initContainers")
        if container.get("restartPolicy") == "Always"
    }
    for status in read_items(part, "status", "initContainerStatuses"):
        name, ended = read_text(status, "name"), read_mapping(status, "state", "terminated")
        last = ended or read_mapping(status, "lastState", "terminated")
        code = read_number(last, "exitCode")
        _, words = describe_waiting(status)
        if code and not read_mapping(status, "state", "running"):
            words = describe_end(code, read_text(last, "reason") or Reason.ERROR, read_message(last, "message"))
        if words:
            return f"the init container {name}: {words}", True
        started = status.get("started") is True and name in restartable
        if not (ended or started):
            return f"the init container {name} is not done", False
    return None


def _explain_others(part: ObjectPart, state: PodState, late: bool) -> tuple[str, bool] | None:
    """What is wrong with a container that another program injected; None if all of them are ready, or ours are not."""
    if not all(container.ready for container in state.containers):
        return None
    ours = {container.name for container in state.containers}
    for status in read_items(part, "status", "containerStatuses"):
        name, last = read_text(status, "name"), read_mapping(status, "lastState", "terminated")
        if name in ours or status.get("ready") is True:
            continue
        _, words = describe_waiting(status)
        if not words and last:
            words = describe_end(read_number(last, "exitCode"), read_text(last, "reason") or Reason.ERROR, "")
        return f"the injected container {name}: {words or 'it is not ready'}", late or bool(words)
    return None


def _explain_gates(part: ObjectPart) -> tuple[str, bool]:
    """What a pod waits for whose containers are all ready."""
    ready = find_condition(part, ConditionType.READY)
    gated = read_text(ready, "reason") == "ReadinessGatesNotReady"
    return (read_message(ready, "message"), False) if gated else ("", False)
