"""Lifecycle hooks that failed, from the events of kubelets; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from reconciler.engines.kubernetes.status.containers import describe_hook_end
from reconciler.engines.kubernetes.status.events import EventIndex, ObjectName
from reconciler.engines.kubernetes.status.fields import ObjectPart, name_of, read_items, read_mapping, read_seconds
from reconciler.reasons import Reason

LINGER_SECONDS = 10.0
"""Seconds after the end of a pod in which the event of its preStop hook may still come, and be noticed."""
_HOOKS = {
    "FailedPostStartHook": ("postStart", Reason.POST_START_FAILED),
    "FailedPreStopHook": ("preStop", Reason.PRE_STOP_FAILED),
}
"""The reasons of kubelets → the name of the hook in manifests, and the reason of the platform."""


class FailedHook(NamedTuple):
    """A hook that failed: the name and the uid of its pod, its container, and what the kubelet calls the failure."""

    pod: str
    uid: str
    container: str
    reason: str


class HookWatch(msgspec.Struct, frozen=True):
    """What is known of the hooks of a workload.

    ``pods`` are the names of those that have a preStop hook of the manifest, ``gone`` are those that have ended lately,
    with the time of that in seconds since the epoch. ``failures`` are the hooks that have failed.
    """

    pods: frozenset[str] = frozenset()
    gone: Mapping[str, float] = {}
    failures: frozenset[FailedHook] = frozenset()


def follow_pods(before: HookWatch, pods: Sequence[ObjectPart], now: float) -> HookWatch:
    """The watch with the pods that exist ``now``, in seconds since the epoch."""
    hooked = frozenset(name_of(pod) for pod in pods if _has_pre_stop(pod))
    gone = dict.fromkeys(before.pods - hooked, now) | dict(before.gone)
    gone = {name: at for name, at in gone.items() if now - at <= LINGER_SECONDS and name not in hooked}
    return HookWatch(hooked, gone, before.failures)


def is_awaited(watch: HookWatch, pods: Sequence[ObjectPart], now: float) -> bool:
    """Whether a preStop hook runs, or has just ended, so that its event may come.

    A pod that does not end within its grace period is on a node that is lost.
    """
    hooked = (pod for pod in pods if name_of(pod) in watch.pods)
    return bool(watch.gone) or any(
        read_seconds(pod, "metadata", "deletionTimestamp") + LINGER_SECONDS >= now for pod in hooked
    )


def find_failures(watch: HookWatch, pods: Sequence[ObjectPart], events: EventIndex) -> HookWatch:
    """The watch with what ``events`` say of hooks; what they no longer say stays as long as its pod."""
    names = {name_of(pod) for pod in pods}.union(watch.gone)
    known = (hook for hook in watch.failures if hook.pod in names)
    return HookWatch(watch.pods, watch.gone, frozenset(known).union(*(_list_failed(name, events) for name in names)))


def report_failures(
    before: HookWatch, after: HookWatch, events: EventIndex, names: Mapping[str, str]
) -> Iterator[tuple[Reason, str]]:
    """An event for each hook that has failed since ``before`` for the first time.

    ``names`` are the containers of the manifest by their names in pods.
    """
    for hook in sorted(after.failures - before.failures):
        title, reason = _HOOKS[hook.reason]
        words = describe_hook_end(_list_failed(hook.pod, events)[hook])
        yield reason, f"{hook.pod}: the {title} hook of {names.get(hook.container, hook.container)} {words}"


def _list_failed(pod: str, events: EventIndex) -> dict[FailedHook, str]:
    """The hooks of ``pod`` that failed, with the words of the kubelet."""
    about = (event for event in events.get(ObjectName("Pod", pod), ()) if event.reason in _HOOKS)
    return {FailedHook(pod, event.uid, event.container, event.reason): event.message for event in about}


def _has_pre_stop(pod: ObjectPart) -> bool:
    """Whether a container has a preStop hook of the manifest: that of the platform only waits."""
    containers = read_items(pod, "spec", "containers")
    return any(read_mapping(container, "lifecycle", "preStop", "exec") for container in containers)
