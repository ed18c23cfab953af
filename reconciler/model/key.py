"""Kinds and keys: what identifies a resource (docs/platform/fields.md#kinds)."""

from __future__ import annotations

from typing import Self

import msgspec

from reconciler.model.kinds.table import TABLE, Kind

__all__ = ["GVC_SCOPED", "KINDS", "PLACED", "Key", "Kind"]

KINDS = {str(kind): kind for kind in Kind}
"""Text to kind, for parsing input."""

GVC_SCOPED = frozenset(kind for kind, traits in TABLE.items() if traits.in_gvc)
"""Kinds whose resources belong to a GVC; those of every other kind belong to the org."""

PLACED = frozenset(kind for kind, traits in TABLE.items() if traits.placed)
"""Kinds that exist once per location of their GVC."""


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """Identity of a resource: ``workload/shop/api``, or ``gvc/shop`` and ``secret/db`` for resources of the org."""

    kind: Kind
    gvc: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.gvc}/{self.name}" if self.gvc else f"{self.kind}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """``workload/shop/api`` → Key. Raises ValueError whose message shows the form of a key."""
        parts = text.split("/")
        kind = KINDS.get(parts[0])
        if kind is not None and all(parts):
            if len(parts) == 3 and kind in GVC_SCOPED:
                return cls(kind, parts[1], parts[2])
            if len(parts) == 2 and kind not in GVC_SCOPED:
                return cls(kind, "", parts[1])
        raise ValueError(f"{text!r} is not a key; keys look like workload/GVC/NAME, gvc/NAME or secret/NAME")
