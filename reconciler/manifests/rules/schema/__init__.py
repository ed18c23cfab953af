"""The rules that a schema can say: the constraint stands there, with ``x-rule``; what it is for stands here."""

from __future__ import annotations

from reconciler.manifests.rules.schema import containers, envelope, options, others
from reconciler.model.rule import Rule

SCHEMA_RULES: tuple[Rule, ...] = (
    *envelope.SCHEMA_RULES,
    *containers.SCHEMA_RULES,
    *options.SCHEMA_RULES,
    *others.SCHEMA_RULES,
)
"""Every rule that a place in a schema names."""
