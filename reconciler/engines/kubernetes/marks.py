"""Annotations by which the engine knows how its objects were applied; those of rendering name the resource."""

from __future__ import annotations

from reconciler.engines.kubernetes.rendering.names import PREFIX

RENDERED = f"{PREFIX}rendered"
"""A hash of the object as it was applied: an equal one needs no request."""
FIELDS = f"{PREFIX}fields"
"""A hash of the fields that were applied: another set of them shows a change by others."""
OBJECTS = f"{PREFIX}objects"
"""On the object that runs a workload: all objects that belong to it, so that a missing one is noticed."""
RESTARTS = f"{PREFIX}restarts"
"""On the object that runs a workload: ``COUNT/MARK``, the requested restarts, and what its pods have for them."""
