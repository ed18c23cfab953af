"""Converts Kubernetes YAML to manifests."""
