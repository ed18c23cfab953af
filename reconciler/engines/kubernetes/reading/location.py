"""Reads a location on a cluster. An idle API imports this, so it imports the client where it is used."""

from __future__ import annotations

from reconciler.settings import Settings


class KubernetesReader:
    """Shows what a cluster has of a location."""

    engine = "kubernetes"

    def __init__(self, settings: Settings, location: str) -> None:
        self.location = location
        self._settings = settings
