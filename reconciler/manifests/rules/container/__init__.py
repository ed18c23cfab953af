"""Rules about containers of workloads."""

from reconciler.manifests.rules.registry import Section

SECTION = Section.CONTAINERS
