"""Kubernetes YAML becomes manifests."""
