"""The desired locations of each GVC, computed once per GVC; the members that a change of a GVC moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from reconciler.model.key import Kind
from reconciler.model.query_match import QueryBudget, term_count
from reconciler.planning.placement import locations_of
from reconciler.planning.plan import Action, Step
from reconciler.records.store import Records

Body = Callable[[str], dict[str, Any] | None]

_PLACEMENT = "staticPlacement"


class GvcLocations:
    """Locations of each GVC.

    ``body`` returns the body of a key, ``manifests`` the keys of all location manifests; ``named`` are the locations
    in the settings of ``org``.
    """

    def __init__(
        self,
        body: Callable[[str], dict[str, Any] | None],
        manifests: Callable[[], Iterable[str]],
        named: frozenset[str],
        org: str,
    ) -> None:
        self._body = body
        self._manifests = manifests
        self._named = named
        self._org = org
        self._known: list[dict[str, Any]] | None = None
        self._by_gvc: dict[str, tuple[str, ...]] = {}
        self._names: tuple[str, ...] | None = None
        self._open: set[str] = set()

    def of(self, gvc: str) -> tuple[str, ...]:
        """Every location of ``gvc``, bound here or not; empty if the GVC is neither desired nor retained."""
        locations = self._by_gvc.get(gvc)
        if locations is None:
            body = self._body(f"{Kind.GVC}/{gvc}")
            locations = () if body is None else locations_of(body, self._locations, self._org)
            self._by_gvc[gvc] = locations
        return locations

    def of_few(self, gvc: str, budget: QueryBudget) -> tuple[str, ...] | None:
        """As ``of``; None if the query exceeds the rest of the ``budget``."""
        if gvc not in self._by_gvc and gvc not in self._open:
            placement = (self._body(f"{Kind.GVC}/{gvc}") or {}).get("spec", {}).get("staticPlacement") or {}
            query = placement.get("locationQuery")
            if query is not None and not budget.take(term_count(query), len(self._locations())):
                self._open.add(gvc)
        return None if gvc in self._open else self.of(gvc)

    def list_known(self) -> tuple[str, ...]:
        """Names of all locations that a query selects from, sorted."""
        if self._names is None:
            self._names = tuple(sorted(body["name"] for body in self._locations()))
        return self._names

    def _locations(self) -> list[dict[str, Any]]:
        """Bodies of all location manifests, and a minimal one for each location only in the settings."""
        if self._known is None:
            bodies = [body for key in sorted(self._manifests()) if (body := self._body(key)) is not None]
            declared = {body["name"] for body in bodies}
            self._known = bodies + [_build_bare_location(name) for name in sorted(self._named - declared)]
        return self._known


def _build_bare_location(name: str) -> dict[str, Any]:
    provider, _, region = name.partition("-")
    return {"kind": "location", "name": name, "provider": provider, "region": region}


def moved_members(records: Records, steps: Iterable[Step]) -> dict[str, frozenset[str]]:
    """Keys of desired resources that ``steps`` may move to other locations, by source.

    A GVC moves its members unless it is updated and placed as before. A location may move the members of any GVC that
    has a location query.
    """
    moved: set[str] = set()
    if any(step.key.kind is Kind.LOCATION for step in steps):
        for gvc in records.applied.gvcs_with_location_query():
            moved.update(records.desired.keys_of_gvc(gvc.partition("/")[2]))
    for step in steps:
        places = step.action is not Action.UPDATE or any(_PLACEMENT in change.path for change in step.changes)
        if step.key.kind is Kind.GVC and places:
            moved.update(records.desired.keys_of_gvc(step.key.name))
    members: defaultdict[str, set[str]] = defaultdict(set)
    for key, entry in records.desired.get_many(moved).items():
        members[entry.source].add(key)
    return {source: frozenset(keys) for source, keys in members.items()}
