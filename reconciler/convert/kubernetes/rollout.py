"""Converts update strategies of Deployments, StatefulSets and DaemonSets."""

from __future__ import annotations

import re

from reconciler.convert.drafts import Body, without_empty
from reconciler.convert.kubernetes.bundle import Item
from reconciler.convert.tracked_value import TrackedValue

_PERCENT = re.compile(r"[0-9]{1,3}%")
_FIELDS = {"maxSurge": "maxSurgeReplicas", "maxUnavailable": "maxUnavailableReplicas"}


def rollout(item: Item, is_stateful: bool) -> Body:
    """``rolloutOptions`` for the workload of ``item`` (docs/platform/workload.md#rollout-options)."""
    spec = item.spec
    options: Body = {"minReadySeconds": spec["minReadySeconds"].number() or None}
    for field in ("strategy", "updateStrategy"):
        options |= _strategy(spec[field], is_stateful)
    policy = spec["podManagementPolicy"]
    if policy and is_stateful:
        options["scalingPolicy"] = policy.text()
    elif policy.text("OrderedReady") != "OrderedReady":
        policy.add_note(
            "convert-left-out", "only stateful workloads have a scaling policy", "mount a claim, or leave it out"
        )
    return without_empty({name: value for name, value in options.items() if value is not None})


def _strategy(part: TrackedValue, is_stateful: bool) -> Body:
    kind, rolling = part["type"].text("RollingUpdate"), part["rollingUpdate"]
    if kind == "Recreate":
        part["type"].add_note(
            "convert-changed", "all replicas are replaced at once, but none is waited for to end first"
        )
        return {"maxUnavailableReplicas": "100%"} if is_stateful else _ALL_AT_ONCE
    if kind != "RollingUpdate":
        part["type"].add_note(
            "convert-left-out", f"the strategy {kind} has no counterpart; replicas are replaced by turns"
        )
    found: Body = {}
    for field, name in _FIELDS.items():
        if rolling[field] and (field != "maxSurge" or not is_stateful):
            found[name] = _amount(rolling[field])
        elif rolling[field]:
            rolling[field].add_note("convert-left-out", "a stateful workload replaces its replicas one at a time")
    return found


_ALL_AT_ONCE: Body = {"maxSurgeReplicas": 0, "maxUnavailableReplicas": "100%"}


def _amount(part: TrackedValue) -> int | str | None:
    """A number of replicas or a percentage."""
    if isinstance(part.value, str):
        if _PERCENT.fullmatch(part.value):
            return part.value
        part.add_note("convert-malformed", f"`{part.at[-1]}` is a whole number or a percentage")
        return None
    return part.number()
