"""Converts quadlets, the units of Podman for systemd, to manifests, by way of a compose project. Pure."""
