"""What an operator wants done about changes that nobody asked for in Git."""

from __future__ import annotations

import msgspec


class Ignore(msgspec.Struct, frozen=True):
    """Fields at or below ``path`` may differ in whatever matches the glob ``key``; an empty path: everything may."""

    key: str
    path: str = ""


class DriftPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Locations are looked at every ``interval`` seconds (0: never); ``most_heals`` are those of a key in an hour."""

    interval: float = 300.0
    heal: bool = True
    most_heals: int = 5
    ignore: tuple[Ignore, ...] = ()
