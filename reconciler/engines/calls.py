"""Calls of engines, counted for metrics."""

from __future__ import annotations

from typing import NamedTuple


class EngineCall(NamedTuple):
    """An operation (the action of a step, ``observe`` or ``command``) and its result: a reason, "" for success."""

    location: str
    operation: str
    reason: str = ""
