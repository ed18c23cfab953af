"""Rules about workloads, GVCs and volume sets."""

from reconciler.manifests.rules.registry import Section

SECTION = Section.WORKLOADS
