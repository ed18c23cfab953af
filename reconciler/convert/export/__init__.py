"""Cleans manifests that the platform exported."""
