"""The locations of a GVC."""

from __future__ import annotations

from reconciler.planning.placement import locations_of

LOCATIONS = [{"kind": "location", "name": name} for name in ("here", "there")]


def test_a_query_selects_locations_by_their_links() -> None:
    term = {"rel": "self", "value": "/org/acme/location/there"}
    gvc = {"spec": {"staticPlacement": {"locationQuery": {"spec": {"terms": [term]}}}}}
    assert locations_of(gvc, lambda: LOCATIONS, "acme") == ("there",)
    assert locations_of(gvc, lambda: LOCATIONS, "other") == ()
