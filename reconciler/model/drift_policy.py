"""The policy for drift: changes at a location that Git does not ask for."""

from __future__ import annotations

import msgspec


class Ignore(msgspec.Struct, frozen=True):
    """Drift to ignore: fields at or below ``path`` (empty: all fields) of resources that match the glob ``key``."""

    key: str
    path: str = ""


class DriftPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Observe locations every ``interval`` seconds (0: never); heal a key at most ``most_heals`` times an hour."""

    interval: float = 300.0
    heal: bool = True
    most_heals: int = 5
    ignore: tuple[Ignore, ...] = ()
