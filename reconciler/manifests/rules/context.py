"""What the answer to a rule's question may look at: the other resources, as they would be after the change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from reconciler.model.key import Kind
from reconciler.model.query_match import QueryBudget
from reconciler.model.resource import Reference

View = TypeVar("View")


class RuleContext(Protocol):
    """The whole desired state as it would be after the change, and what exists besides.

    ``process_locations`` are the locations whose containers are programs of the host, which uses no images.
    ``query_budget`` is what rules may compare for queries.
    """

    process_locations: frozenset[str]
    query_budget: QueryBudget

    def typed(self, key: str, view: type[View]) -> View | None:
        """The resource ``key`` in normal form, as ``view``; None where its body is not known here."""

    def users(self, key: str, kind: Kind) -> Sequence[str]:
        """Keys of all resources of ``kind`` that refer to ``key``, in order."""

    def references(self, key: str) -> Sequence[Reference]:
        """What a resource refers to; empty where there is none."""

    def locations(self, gvc: str) -> tuple[str, ...] | None:
        """Names of the locations of a GVC; empty where it is not known, None where finding out takes too long."""

    def memoized(self, name: tuple[str, ...], make: Callable[[], View]) -> View:
        """What ``make`` makes: once for each ``name``, since thousands may rest on it; the name says of what type."""

    def known_locations(self) -> tuple[str, ...]:
        """Names of the locations that manifests declare or the settings bind, sorted."""

    def unresolved(self, kind: str) -> Sequence[tuple[str, ...] | None]:
        """The keys that each faulty or external resource of ``kind`` links to; None where that is not known."""
