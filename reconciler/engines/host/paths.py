"""The name of this engine, and the directory of each of its locations."""

from __future__ import annotations

from pathlib import Path

ENGINE = "host"
"""In the settings, in records, and in the state directory."""


def find_directories(state: Path) -> Path:
    """The directory with those of all locations, in the state directory ``state``."""
    return state / ENGINE


def find_directory(state: Path, location: str) -> Path:
    """The directory of everything that belongs to ``location``."""
    return state / ENGINE / location
