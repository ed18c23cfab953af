"""Manifests out of what others wrote: Kubernetes documents, and what the platform itself exports. Pure."""
