"""Converts files of Kubernetes, Compose, Kamal and Podman, and exports of the platform, to manifests. Pure."""
