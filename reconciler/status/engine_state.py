"""Reads conditions and messages from the engine state of a record, and decodes as little as possible."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from reconciler.reasons import ConditionType, Reason


class EngineCondition(NamedTuple):
    """A condition that an engine reports in the state of a deployment."""

    type: ConditionType
    reason: Reason
    message: str


class _Condition(msgspec.Struct):
    type: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    message: str = ""
    conditions: list[_Condition] = []


class _State(msgspec.Struct):
    status: _Status | None = None


_SHOWN = re.compile(rb'"conditions":\s*\[\s*\{')
_TYPES = frozenset(map(str, ConditionType))

_decode = msgspec.json.Decoder(_State).decode


def message_of(state: bytes) -> str:
    """The engine's message for a deployment in progress or not healthy (docs/platform/workload.md#deployments)."""
    return _status(state).message


def engine_conditions(state: bytes) -> list[EngineCondition]:
    """The conditions that an engine reports; most states have none and need no decoding for this."""
    if not _SHOWN.search(state):
        return []
    return [
        EngineCondition(ConditionType(each.type), Reason.stored(each.reason), each.message)
        for each in _status(state).conditions
        if each.type in _TYPES
    ]


def _status(state: bytes) -> _Status:
    try:
        return _decode(state).status or _Status()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return _Status()
