"""The context of a rule's question: the other resources, as they would be after the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reconciler.manifests.desired_state import DesiredBodies, DesiredIndex
from reconciler.model.query_match import QueryBudget

Value = TypeVar("Value")

MAX_MEMOIZED = 4096
"""The number of values that rules share at once."""


class RuleContext:
    """The index and the bodies of the desired state, and values that the answers of one check share.

    ``query_budget`` limits the comparisons for queries.
    """

    def __init__(self, index: DesiredIndex, bodies: DesiredBodies) -> None:
        self.index = index
        self.bodies = bodies
        self.query_budget = QueryBudget()
        self._memoized: dict[tuple[str, ...], Any] = {}

    def locations(self, gvc: str) -> tuple[str, ...] | None:
        """Names of the locations of a GVC; empty if it is unknown, None if the query takes too long."""
        return self.bodies.locations(gvc, self.query_budget)

    def memoize(self, name: tuple[str, ...], make: Callable[[], Value]) -> Value:
        """The result of ``make``, computed once for each ``name``; the name determines its type."""
        if name not in self._memoized:
            if len(self._memoized) >= MAX_MEMOIZED:
                self._memoized.clear()
            self._memoized[name] = make()
        return self._memoized[name]  # type: ignore[no-any-return]
