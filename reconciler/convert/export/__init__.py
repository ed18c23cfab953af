"""Manifests that the platform exported become manifests to keep."""
