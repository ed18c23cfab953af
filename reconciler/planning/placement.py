"""The locations of a GVC: by its links and its location query (docs/platform/fields.md#gvc)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reconciler.model.query_match import selector

Body = Mapping[str, Any]


def locations_of(gvc: Body, known: Callable[[], Sequence[Body]], org: str) -> tuple[str, ...]:
    """Names of the locations of the GVC with the body ``gvc``, sorted; ``known`` returns all locations' bodies."""
    placement = gvc["spec"].get("staticPlacement") or {}
    names = {link.rpartition("/")[2] for link in placement.get("locationLinks", ())}
    query = placement.get("locationQuery")
    if query is not None:
        names.update(body["name"] for body in filter(selector(query, org), known()))
    return tuple(sorted(names))
