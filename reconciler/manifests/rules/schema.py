"""The rules that a schema can say: the constraint stands there, with ``x-rule``; what it is for stands here."""

from __future__ import annotations

from reconciler.manifests.rules import schema_containers, schema_envelope, schema_options, schema_others
from reconciler.model.rule import Rule

SCHEMA_RULES: tuple[Rule, ...] = (
    *schema_envelope.SCHEMA_RULES,
    *schema_containers.SCHEMA_RULES,
    *schema_options.SCHEMA_RULES,
    *schema_others.SCHEMA_RULES,
)
"""Every rule that a place in a schema names."""
