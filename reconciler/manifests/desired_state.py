"""The desired state for checks between resources: an index, bodies, and positions in files."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from reconciler.model.finding import Pointer
from reconciler.model.key import Kind
from reconciler.model.query_match import QueryBudget
from reconciler.model.resource import Reference, Resource

View = TypeVar("View")


class ResourceLocation(msgspec.Struct, frozen=True):
    """The place of a resource: enough to find the line of any of its values.

    ``source`` is the name of another source, whose files cannot be read here; "" for this one.
    """

    path: str
    blob: str
    position: int
    source: str = ""


class DesiredIndex(Protocol):
    """The resources after the change, their places and references. It reads no file.

    ``process_locations`` are the locations whose containers are programs of the host, which uses no images.
    """

    process_locations: frozenset[str]

    def prefetch(self, keys: Iterable[str]) -> None:
        """Read the entries of ``keys`` in one batch, since they are needed next."""

    def prefetch_users(self, targets: Iterable[str], kind: Kind) -> Iterable[str]:
        """Read the users of ``kind`` of each of ``targets`` in one batch; returns the keys of unchanged users."""

    def is_first_load(self) -> bool:
        """Whether the desired state has only the change."""

    def exists(self, target: str) -> bool:
        """Whether a link to ``target`` is satisfied."""

    def references(self, key: str) -> Sequence[Reference]:
        """The references of a resource; empty if it does not exist."""

    def references_before(self, key: str) -> Sequence[Reference]:
        """The references of a resource in the last good revision."""

    def referrers(self, target: str) -> Sequence[str]:
        """Keys of unchanged resources that refer to ``target``."""

    def referrers_of_any(self, targets: Iterable[str]) -> Iterable[str]:
        """Keys of unchanged resources that refer to any of ``targets``."""

    def select_referred(self, targets: Iterable[str]) -> Container[str]:
        """Those of ``targets`` to which an indexed resource refers."""

    def users(self, key: str, kind: Kind) -> Sequence[str]:
        """Keys of all resources of ``kind`` that refer to ``key``, in order."""

    def list_unresolved(self, kind: str) -> Sequence[tuple[str, ...] | None]:
        """The keys that each faulty or external resource of ``kind`` links to; None if they are unknown."""

    def site(self, key: str) -> ResourceLocation:
        """The place of an existing resource."""

    def similar_keys(self, kind: str) -> Sequence[str]:
        """Keys of ``kind`` that the author of another one may have meant."""


class DesiredBodies(Protocol):
    """The resources themselves. Only this part decodes."""

    @property
    def org(self) -> str:
        """The org of the resources."""

    def resource(self, key: str) -> Resource | None:
        """A resource that this source desires, with its body and questions."""

    def read_view(self, key: str, view: type[View]) -> View | None:
        """The resource ``key`` in normal form, as ``view``; None if its body is unknown."""

    def former_bodies(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        """The bodies of ``keys`` in the last good revision, in normal form; without those that cannot be read now."""

    def locations(self, gvc: str, budget: QueryBudget) -> tuple[str, ...] | None:
        """Names of the locations of a GVC; empty if it is unknown, None if its query exceeds the budget."""

    def known_locations(self) -> tuple[str, ...]:
        """Names of the locations that manifests declare or the settings bind, sorted."""

    def gvcs_moved_by(self, locations: Iterable[str]) -> Sequence[str]:
        """Keys of GVCs whose location queries may answer otherwise since the ``locations`` (keys) changed."""


class FindingPositions(Protocol):
    """Positions of values, for findings."""

    def position(self, site: ResourceLocation, pointer: Pointer) -> tuple[int, int]:
        """Line and column of a value."""

    def silenced_by(self, site: ResourceLocation, line: int, rule: str) -> int:
        """The line of the comment that silences the warnings of a rule on a line; 0 for none."""


class DesiredState(Protocol):
    """The whole desired state after the change, and external resources."""

    @property
    def index(self) -> DesiredIndex:
        """The index of resources."""

    @property
    def bodies(self) -> DesiredBodies:
        """The bodies of resources."""

    @property
    def positions(self) -> FindingPositions:
        """The positions of values."""
