"""A typed view of a secret (4-fields.md, section 7): what rules look at, with its data or with masks in their place."""

from __future__ import annotations

from typing import Any

from reconciler.model.view import Envelope

TEXTS = frozenset({"docker", "gcp", "azure-sdk"})
"""Types whose data is one JSON text."""

_NO_KEYS = frozenset({"encoding", "repos"})


class Secret(Envelope, frozen=True):
    """A secret; ``data`` maps keys to values, or is one text."""

    type: str = ""
    data: dict[str, Any] | str | None = None

    def key_names(self) -> list[str]:
        """What a reference may name after the dot, sorted; none where the secret is one text."""
        if not isinstance(self.data, dict):
            return []
        return sorted(self.data if self.type == "dictionary" else self.data.keys() - _NO_KEYS)
