"""The locations of a GVC: by its links and its location query (docs/platform/fields.md#gvc)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reconciler.model.query_match import make_selector

Body = Mapping[str, Any]


def locations_of(gvc: Body, all_locations: Callable[[], Sequence[Body]], org: str) -> tuple[str, ...]:
    """Names of the locations of the GVC with the body ``gvc``, sorted; ``all_locations`` returns the bodies of all."""
    placement = gvc["spec"].get("staticPlacement") or {}
    names = {link.rpartition("/")[2] for link in placement.get("locationLinks", ())}
    query = placement.get("locationQuery")
    if query is not None:
        names.update(body["name"] for body in filter(make_selector(query, org), all_locations()))
    return tuple(sorted(names))
