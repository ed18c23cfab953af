"""What the answer to a rule's question may look at: the other resources, as they would be after the change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from reconciler.model.key import Kind
from reconciler.model.resource import Reference

View = TypeVar("View")


class RuleContext(Protocol):
    """The whole desired state as it would be after the change, and what exists besides.

    ``process_locations`` are the locations whose containers are programs of the host, which uses no images.
    """

    process_locations: frozenset[str]

    def typed(self, key: str, view: type[View]) -> View | None:
        """The resource ``key`` in normal form, as ``view``; None where its body is not known here."""

    def users(self, key: str, kind: Kind) -> Sequence[str]:
        """Keys of all resources of ``kind`` that refer to ``key``, in order."""

    def references(self, key: str) -> Sequence[Reference]:
        """What a resource refers to; empty where there is none."""

    def locations(self, gvc: str) -> tuple[str, ...]:
        """Names of the locations of a GVC; empty where it is not known."""

    def memoized(self, name: tuple[str, ...], judge: Callable[[], bool]) -> bool:
        """What ``judge`` says: asked once for each ``name``, since thousands may rest on the same verdict."""

    def known_locations(self) -> tuple[str, ...]:
        """Names of the locations that manifests declare or the settings bind."""

    def unresolved(self, kind: str) -> Sequence[tuple[str, ...] | None]:
        """The keys that each faulty or external resource of ``kind`` links to; None where that is not known."""
