"""Notes each field that the conversion did not use, unless its value matches the platform's behaviour."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Set
from typing import Any

from reconciler.convert.tracked_value import ResourceNotes, TrackedValue
from reconciler.model.finding import Pointer

ANY = "any value"

SAME_HERE: dict[str, tuple[Any, ...]] = {
    "terminationMessagePath": (ANY,),
    "terminationMessagePolicy": (ANY,),
    "dnsPolicy": ("ClusterFirst",),
    "restartPolicy": ("Always",),
    "schedulerName": ("default-scheduler",),
    "imagePullPolicy": ("Always", "IfNotPresent"),
    "revisionHistoryLimit": (ANY,),
    "progressDeadlineSeconds": (600,),
    "terminationGracePeriodSeconds": tuple(range(91)),
    "automountServiceAccountToken": (False,),
    "enableServiceLinks": (ANY,),
    "serviceAccount": (ANY,),
    "preemptionPolicy": ("PreemptLowerPriority",),
    "priority": (0,),
    "hostNetwork": (False,),
    "hostPID": (False,),
    "hostIPC": (False,),
    "privileged": (False,),
    "shareProcessNamespace": (False,),
    "stdin": (False,),
    "stdinOnce": (False,),
    "tty": (False,),
    "selector": (ANY,),
    "serviceName": (ANY,),
    "paused": (False,),
    "partition": (0,),
    "persistentVolumeClaimRetentionPolicy": ({"whenDeleted": "Retain", "whenScaled": "Retain"},),
    "completionMode": ("NonIndexed",),
    "completions": (1,),
    "parallelism": (1,),
    "backoffLimit": (6,),
    "manualSelector": (ANY,),
    "podReplacementPolicy": (ANY,),
    "volumeMode": ("Filesystem",),
    "accessModes": (ANY,),
    "sessionAffinity": ("None",),
    "clusterIP": (ANY,),
    "clusterIPs": (ANY,),
    "ipFamilies": (ANY,),
    "ipFamilyPolicy": (ANY,),
    "internalTrafficPolicy": ("Cluster",),
    "externalTrafficPolicy": ("Cluster",),
    "nodePort": (ANY,),
    "healthCheckNodePort": (ANY,),
    "allocateLoadBalancerNodePorts": (ANY,),
    "publishNotReadyAddresses": (False,),
    "ingressClassName": (ANY,),
    "optional": (False,),
    "immutable": (False,),
}
"""Fields omitted without a note, with the values for which the platform does the same or nothing is lost."""

INSTEAD = {
    "nodeSelector": "workloads run at the locations of their GVC",
    "nodeName": "workloads run at the locations of their GVC",
    "affinity": "workloads run at the locations of their GVC",
    "tolerations": "workloads run at the locations of their GVC",
    "topologySpreadConstraints": "workloads run at the locations of their GVC",
    "startupProbe": "raise initialDelaySeconds of the liveness probe",
    "terminationGracePeriodSeconds": "a replica has up to 90 seconds to end",
    "hostNetwork": "list what may be reached in firewallConfig",
    "privileged": "containers have no rights beyond their own",
    "capabilities": "containers have no rights beyond their own",
    "hostAliases": "use names that resolve everywhere",
    "dnsConfig": "use names that resolve everywhere",
    "automountServiceAccountToken": "workloads have a token of the platform, PLATFORM_TOKEN",
    "sessionAffinity": "keep sessions where every replica can reach them",
    "behavior": "scaling down waits for 5 minutes, scaling up for nothing",
    "backoffLimit": "see job.restartPolicy and job.activeDeadlineSeconds",
    "resizePolicy": "see defaultOptions.capacityAI",
    "imagePullPolicy": "see supportDynamicTags",
    "fsGroupChangePolicy": "a volume gets its group when it is made",
    "sizeLimit": "a replica has 1 GB of its own, and 1 GB more for each core above the first",
    "subdomain": "replicas of stateful workloads are called WORKLOAD-INDEX.WORKLOAD",
    "hostname": "replicas of stateful workloads are called WORKLOAD-INDEX.WORKLOAD",
}
"""Replacements for fields that have no counterpart."""

QUIET_ANNOTATIONS = (
    "kubectl.kubernetes.io/",
    "deployment.kubernetes.io/",
    "meta.helm.sh/",
    "pv.kubernetes.io/",
    "checksum/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/storage-provisioner",
    "autoscaling.alpha.kubernetes.io/",
    "batch.kubernetes.io/",
    "kubernetes.io/ingress.class",
)
"""Prefixes of annotations that tools write for their own use."""

QUIET_LABELS = (
    "pod-template-hash",
    "pod-template-generation",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/",
    "statefulset.kubernetes.io/",
    "apps.kubernetes.io/",
    "service.kubernetes.io/headless",
)
"""Prefixes of labels that a cluster writes itself."""

BOOKKEEPING = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "generateName",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Metadata that the cluster writes, and the name and namespace, which templates need not have."""

_NEVER = frozenset({"status", "apiVersion", "kind"})

Labels = Set[tuple[str, str]]
"""Names and values."""


def carried_labels(sheet: ResourceNotes, root: TrackedValue) -> Labels:
    """The labels of ``root`` itself that the conversion carries over."""
    metadata = root.peek("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    at = (*root.at, "metadata", "labels")
    own = labels.items() if isinstance(labels, dict) else ()
    return {(name, value) for name, value in own if (*at, name) in sheet.carried and isinstance(value, str)}


def note_unused_fields(sheet: ResourceNotes, root: TrackedValue, others: Labels = frozenset()) -> None:
    """Note every field of ``root`` that was not used and has a meaning.

    ``others`` are labels that other resources carry over. The same labels of ``root`` itself are not lost.
    """
    if root.at in sheet.whole or not isinstance(root.value, dict):
        return
    carried = carried_labels(sheet, root)
    for name, value in root.value.items():
        part = TrackedValue(sheet, (*root.at, name), value)
        if name == "metadata":
            _note_metadata(part, carried | others)
        elif name not in _NEVER:
            _note_unused_part(part, carried)


def _note_unused_part(part: TrackedValue, carried: Labels) -> None:
    """Note the unused fields of ``part``; neighbours with the same replacement share a note."""
    together: dict[tuple[Pointer, str], list[TrackedValue]] = {}
    for left in _list_unused_fields(part.sheet, part.at, part.value, carried):
        together.setdefault((left.at[:-1], INSTEAD.get(_get_field_name(left), "")), []).append(left)
    for (_, instead), parts in together.items():
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(map(_get_field_name, parts)))
        has, is_left = ("have", "are") if "," in names else ("has", "is")
        parts[0].add_note(
            "convert-left-out", f"{names} {has} no counterpart and {is_left} left out", instead, on_key=True
        )


def _get_field_name(part: TrackedValue) -> str:
    return str(next(step for step in reversed(part.at) if isinstance(step, str)))


def _list_unused_fields(sheet: ResourceNotes, at: Pointer, value: Any, carried: Labels) -> Iterator[TrackedValue]:
    """The topmost unused parts at or below ``at``, unless empty or matching the platform's behaviour."""
    if at in sheet.whole or value in (None, {}, [], ""):
        return
    if at[-1] == "metadata" and isinstance(value, dict):
        _note_metadata(TrackedValue(sheet, at, value), carried)
    elif at not in sheet.seen:
        if not _is_same_here(at, value):
            yield TrackedValue(sheet, at, value)
    elif isinstance(value, dict | list):
        for step, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _list_unused_fields(sheet, (*at, step), member, carried)


def _is_same_here(at: Pointer, value: Any) -> bool:
    name = str(at[-1])
    if name == "terminationGracePeriodSeconds" and at[-2:-1] != ("spec",):
        return False  # the field of a probe, which the platform does not have
    accepted = SAME_HERE.get(name, ())
    return ANY in accepted or any(type(value) is type(candidate) and value == candidate for candidate in accepted)


def _note_metadata(metadata: TrackedValue, carried: Labels) -> None:
    """Note labels, annotations and fields of ``metadata`` that nothing carries over."""
    sheet, value = metadata.sheet, metadata.value
    if metadata.at in sheet.whole or not isinstance(value, dict):
        return
    labels, annotations = ((*metadata.at, name) for name in ("labels", "annotations"))
    tied = [
        key for key, text in _list_members(value, "labels") if not isinstance(text, str) or (key, text) not in carried
    ]
    noted = [key for key, _ in _list_members(value, "annotations") if (*annotations, key) not in sheet.seen]
    _note_keys(sheet, labels, [key for key in tied if (*labels, key) not in sheet.carried], QUIET_LABELS)
    _note_keys(sheet, annotations, noted, QUIET_ANNOTATIONS)
    for name, member in value.items():
        if name not in BOOKKEEPING | {"labels", "annotations"} and member not in (None, {}, [], ""):
            message = f"`{name}` has no counterpart and is left out"
            TrackedValue(sheet, (*metadata.at, name), member).add_note("convert-left-out", message, on_key=True)


def _list_members(metadata: dict[str, Any], name: str) -> ItemsView[str, Any]:
    section = metadata.get(name)
    return (section if isinstance(section, dict) else {}).items()


def _note_keys(sheet: ResourceNotes, at: Pointer, keys: list[str], quiet: tuple[str, ...]) -> None:
    """Note ``keys`` of the labels or annotations at ``at``, without those that have a ``quiet`` prefix."""
    if left := [key for key in keys if not key.startswith(quiet)]:
        message = f"{at[-1]} without a counterpart are left out: {', '.join(left)}"
        TrackedValue(sheet, at, None).add_note("convert-left-out", message, on_key=True)
