"""Every rule that a finding can name, from every stage of the line."""

from __future__ import annotations

from functools import cache

from reconciler.manifests.rules import rules
from reconciler.model.rule import Rule


@cache
def rulebook() -> dict[str, Rule]:
    """All rules by id."""
    return dict(rules())
