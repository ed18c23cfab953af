"""Converts Kubernetes documents and exports of the platform to manifests. Pure."""
