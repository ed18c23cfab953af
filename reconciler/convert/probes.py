"""Bounds of probes."""

from __future__ import annotations

from reconciler.convert.tracked_value import TrackedValue

PROBE_BOUNDS = {
    "initialDelaySeconds": (0, 600),
    "periodSeconds": (1, 60),
    "timeoutSeconds": (1, 60),
    "successThreshold": (1, 20),
    "failureThreshold": (1, 20),
}
"""Limits of the platform (docs/platform/workload.md#probes)."""


def clamp_value(part: TrackedValue, value: int, least: int, most: int) -> int:
    """``value`` within its bounds; ``part`` gets a note if that is another number."""
    fit = min(max(value, least), most)
    if fit != value:
        part.add_note("convert-changed", f"{value} is not from {least} to {most}; the value becomes {fit}")
    return fit
