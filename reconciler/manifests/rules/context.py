"""What the answer to a rule's question rests on: the other resources, as they would be after the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reconciler.manifests.desired_state import DesiredBodies, DesiredIndex
from reconciler.model.query_match import QueryBudget

Value = TypeVar("Value")

MAX_MEMOIZED = 4096
"""Values that rules share at a time."""


class RuleContext:
    """The index and the bodies of the desired state, and what the answers of one check share.

    ``query_budget`` is what rules may compare for queries.
    """

    def __init__(self, index: DesiredIndex, bodies: DesiredBodies) -> None:
        self.index = index
        self.bodies = bodies
        self.query_budget = QueryBudget()
        self._memoized: dict[tuple[str, ...], Any] = {}

    def locations(self, gvc: str) -> tuple[str, ...] | None:
        """Names of the locations of a GVC; empty where it is not known, None where finding out takes too long."""
        return self.bodies.locations(gvc, self.query_budget)

    def memoized(self, name: tuple[str, ...], make: Callable[[], Value]) -> Value:
        """What ``make`` makes: once for each ``name``, since thousands may rest on it; the name determines its type."""
        if name not in self._memoized:
            if len(self._memoized) >= MAX_MEMOIZED:
                self._memoized.clear()
            self._memoized[name] = make()
        return self._memoized[name]  # type: ignore[no-any-return]
