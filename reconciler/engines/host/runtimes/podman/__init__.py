"""Containers by Podman, over its REST API on a unix socket of this host."""
