"""Every rule that a finding can name, from every stage of the line."""

from __future__ import annotations

from functools import cache

from reconciler.manifests.rules import rules
from reconciler.manifests.rules.schema import SCHEMA_RULES
from reconciler.model.rule import Rule


@cache
def rulebook() -> dict[str, Rule]:
    """All rules by id."""
    return {rule.id: rule for rule in SCHEMA_RULES} | rules()
