"""Rules between resources."""

from reconciler.manifests.rules.registry import Section

SECTION = Section.BETWEEN
