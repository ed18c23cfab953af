"""The end of objects: preconditions, finalizers, grace periods."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tests.kubernetes.fake.errors import Object, Resource, precondition_failed

RETURNED = frozenset({"Pod", "PersistentVolume", "PersistentVolumeClaim", "ResourceQuota", "ServiceAccount", "Service"})
"""Kinds of which the server answers a deletion with the object."""
CASCADE = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
"""Propagation policy → its finalizer."""


class DeleteOptions(NamedTuple):
    """How an object is deleted."""

    propagation: str
    grace: int | None
    uid: str
    version: str
    dry_run: bool


def read_options(body: Any, query: dict[str, str]) -> DeleteOptions:
    """The options of a request: its body, else its query."""
    body = body if isinstance(body, dict) else {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    conditions = body.get("preconditions") or {}
    return DeleteOptions(
        body.get("propagationPolicy") or query.get("propagationPolicy", ""),
        None if grace is None else int(grace),
        conditions.get("uid") or "",
        conditions.get("resourceVersion") or "",
        "All" in (body.get("dryRun") or ()),
    )


def check_preconditions(resource: Resource, live: Object, options: DeleteOptions) -> None:
    """ApiError unless the object is the one that the request means."""
    name, metadata = live["metadata"]["name"], live["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        current = metadata["uid"]
        raise precondition_failed(
            resource,
            name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({current}). The object "
            "might have been deleted and then recreated",
        )
    if options.version and options.version != metadata["resourceVersion"]:
        raise precondition_failed(
            resource,
            name,
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified",
        )


def mark_deleted(resource: Resource, live: Object, options: DeleteOptions, now: str) -> Object:
    """The object with what a deletion writes into it."""
    new = deepcopy(live)
    metadata = new["metadata"]
    policy = options.propagation or _policy_of(resource, live)
    finalizers = [name for name in metadata.get("finalizers") or () if name not in CASCADE.values()]
    if policy in CASCADE:
        finalizers.append(CASCADE[policy])
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = grace_of(resource, live, options)
    if metadata.get("deletionTimestamp"):
        if resource.kind != "Namespace":
            metadata["deletionGracePeriodSeconds"] = min(grace, metadata.get("deletionGracePeriodSeconds", 0))
        return new
    metadata["deletionTimestamp"] = add_seconds(now, grace)
    if resource.kind != "Namespace":
        metadata["deletionGracePeriodSeconds"] = grace
    if metadata.get("generation"):
        metadata["generation"] += 1
    return new


def _policy_of(resource: Resource, live: Object) -> str:
    """The policy where a request names none: that of an earlier one, else the kind's."""
    for policy, finalizer in CASCADE.items():
        if finalizer in (live["metadata"].get("finalizers") or ()):
            return policy
    return "Orphan" if resource.kind == "Job" else "Background"


def grace_of(resource: Resource, live: Object, options: DeleteOptions) -> int:
    """Seconds until the object may be removed: only a pod on a node gets any."""
    if resource.kind != "Pod" or resource.group or not live["spec"].get("nodeName"):
        return 0
    if (live.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.grace
    return live["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else max(asked, 0)


def is_gone(new: Object, live: Object) -> bool:
    """Whether nothing holds the object back."""
    if live["kind"] == "Namespace":
        return not live.get("spec", {}).get("finalizers") and not new["metadata"].get("finalizers")
    return not new["metadata"].get("finalizers") and not new["metadata"].get("deletionGracePeriodSeconds")


def is_finished(new: Object) -> bool:
    """Whether a write removed the last finalizer of a deleted object."""
    metadata = new["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    waits = new["kind"] == "Namespace" and new.get("spec", {}).get("finalizers")
    return not waits and not metadata.get("deletionGracePeriodSeconds")


JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def warnings_of(resource: Resource, options: DeleteOptions) -> tuple[str, ...]:
    """What the server warns of."""
    return (JOB_WARNING,) if resource.kind == "Job" and not options.propagation else ()


def success(resource: Resource, live: Object) -> Object:
    """The Status of a deletion."""
    details = resource.details(live["metadata"]["name"]) | {"uid": live["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def add_seconds(time: str, seconds: int) -> str:
    """``time`` and so many seconds more."""
    moment = datetime.fromisoformat(time.replace("Z", "+00:00")) + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
