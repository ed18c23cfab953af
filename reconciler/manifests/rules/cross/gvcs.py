"""The locations that the query of a GVC finds."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.registry import Advice, register_warning, shared_cross_rule
from reconciler.model.finding import Lookup
from reconciler.model.key import Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.resource import LookupRequest


@register_warning("location-query-empty", "docs/platform/fields.md#gvc", Kind.GVC)
def check_location_query(gvc: Gvc) -> Iterator[Lookup]:
    """A GVC with only a query for its locations finds at least one.

    Without a location nothing in the GVC runs, and nothing fails either: the workloads just do not exist.
    """
    placement = gvc.spec.static_placement
    if placement is not None and placement.location_query is not None and not placement.location_links:
        yield Lookup(("spec", "staticPlacement", "locationQuery"), f"gvc/{gvc.name}")


@shared_cross_rule("location-query-empty")
def answer_location_query(question: LookupRequest, _: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the query matches any of the known locations."""
    location_names = world.bodies.known_locations()
    if location_names and world.locations(question.target.partition("/")[2]) == ():
        yield (
            f"this query matches none of the {len(location_names)} known locations: {_format_names(location_names)}",
            "relax its terms",
        )


def _format_names(names: tuple[str, ...]) -> str:
    return ", ".join((*names[:5], *(["…"] if len(names) > 5 else [])))
