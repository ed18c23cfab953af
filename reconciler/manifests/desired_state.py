"""What the checks between resources ask of the whole desired state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from reconciler.manifests.rules.context import RuleContext
from reconciler.model.finding import Pointer
from reconciler.model.resource import Reference, Resource


class ResourceLocation(msgspec.Struct, frozen=True):
    """Where a resource is written: enough to find the line of any of its values.

    ``source`` names the source where that is another one, whose files cannot be read here.
    """

    path: str
    blob: str
    position: int
    source: str = ""


class DesiredState(RuleContext, Protocol):
    """The whole desired state as it would be after the change, and what exists besides."""

    def prefetch(self, keys: Iterable[str]) -> None:
        """Be told which keys are asked about next, so that they can be read together."""

    def exists(self, target: str) -> bool:
        """Whether a link to ``target`` is satisfied."""

    def is_first_load(self) -> bool:
        """Whether the change is all that is desired."""

    def resource(self, key: str) -> Resource | None:
        """A resource that this source asks for, with its body and questions."""

    def referrers(self, target: str) -> Sequence[str]:
        """Keys of unchanged resources that refer to ``target``."""

    def gvcs_with_location_query(self) -> Sequence[str]:
        """Keys of all GVCs that find locations by a query."""

    def references_before(self, key: str) -> Sequence[Reference]:
        """What a resource referred to in the last good revision."""

    def site(self, key: str) -> ResourceLocation:
        """Where an existing resource is written."""

    def similar_keys(self, kind: str) -> Sequence[str]:
        """Keys of ``kind`` that somebody who wrote another one may have meant."""

    def position(self, site: ResourceLocation, pointer: Pointer) -> tuple[int, int]:
        """Line and column of a value."""

    def silenced_by(self, site: ResourceLocation, line: int, rule: str) -> int:
        """The line of the comment that silences the warnings of a rule on a line; 0 for none."""
