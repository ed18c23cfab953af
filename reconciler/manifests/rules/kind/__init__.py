"""Rules about other kinds, and about tags and queries."""

from reconciler.manifests.rules.registry import Section

SECTION = Section.OTHERS
