"""Notes each field that the conversion did not use, unless its value matches the platform's behaviour."""

from __future__ import annotations

from collections.abc import Iterator
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
    "kubectl.kubernetes.io/", "deployment.kubernetes.io/", "meta.helm.sh/", "pv.kubernetes.io/", "checksum/",
    "volume.kubernetes.io/", "volume.beta.kubernetes.io/storage-provisioner", "autoscaling.alpha.kubernetes.io/",
    "batch.kubernetes.io/", "kubernetes.io/ingress.class",
)  # fmt: skip
"""Prefixes of annotations that tools write for their own use."""

_NEVER = frozenset({"status", "apiVersion", "kind"})


def note_unused_fields(sheet: ResourceNotes, root: TrackedValue) -> None:
    """Note every field of ``root`` that was not used and has a meaning."""
    if root.at in sheet.whole or not isinstance(root.value, dict):
        return
    for name, value in root.value.items():
        part = TrackedValue(sheet, (*root.at, name), value)
        if name == "metadata":
            _annotations(part)
        elif name not in _NEVER:
            _tell(part)


def _tell(part: TrackedValue) -> None:
    """Note the unused fields of ``part``; neighbours with the same replacement share a note."""
    together: dict[tuple[Pointer, str], list[TrackedValue]] = {}
    for left in _left(part.sheet, part.at, part.value):
        together.setdefault((left.at[:-1], INSTEAD.get(_field(left), "")), []).append(left)
    for (_, instead), parts in together.items():
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(map(_field, parts)))
        has, is_left = ("have", "are") if "," in names else ("has", "is")
        parts[0].add_note(
            "convert-left-out", f"{names} {has} no counterpart and {is_left} left out", instead, on_key=True
        )


def _field(part: TrackedValue) -> str:
    return str(next(step for step in reversed(part.at) if isinstance(step, str)))


def _left(sheet: ResourceNotes, at: Pointer, value: Any) -> Iterator[TrackedValue]:
    """The topmost unused parts at or below ``at``, unless empty or matching the platform's behaviour."""
    if at in sheet.whole or value in (None, {}, [], ""):
        return
    if at[-1] == "metadata" and isinstance(value, dict):
        _annotations(TrackedValue(sheet, at, value))
    elif at not in sheet.seen:
        if not _is_same_here(at, value):
            yield TrackedValue(sheet, at, value)
    elif isinstance(value, dict | list):
        for step, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _left(sheet, (*at, step), member)


def _is_same_here(at: Pointer, value: Any) -> bool:
    name = str(at[-1])
    if name == "terminationGracePeriodSeconds" and at[-2:-1] != ("spec",):
        return False  # the field of a probe, which the platform does not have
    accepted = SAME_HERE.get(name, ())
    return ANY in accepted or any(type(value) is type(each) and value == each for each in accepted)


def _annotations(metadata: TrackedValue) -> None:
    at = (*metadata.at, "annotations")
    value = metadata.peek("annotations")
    if metadata.at in metadata.sheet.whole or not isinstance(value, dict):
        return
    left = [name for name in value if (*at, name) not in metadata.sheet.seen and not name.startswith(QUIET_ANNOTATIONS)]
    if left:
        TrackedValue(metadata.sheet, at, value).add_note(
            "convert-left-out", f"annotations without a counterpart are left out: {', '.join(left)}", on_key=True
        )
