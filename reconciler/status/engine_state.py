"""Reads conditions and messages from the engine state of a record, and decodes as little as possible."""

from __future__ import annotations

import msgspec

NOT_ENFORCED = "NotEnforced"
CLOCK_JUMPED = "ClockJumped"


class _Condition(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    message: str = ""
    conditions: list[_Condition] = []


class _State(msgspec.Struct):
    status: _Status | None = None


_decode = msgspec.json.Decoder(_State).decode


def message_of(state: bytes) -> str:
    """What an engine says about a deployment on its way or unwell (docs/platform/workload.md#deployments)."""
    return _status(state).message


def engine_condition_messages(state: bytes, kind: str) -> list[str]:
    """The messages of the engine's condition ``kind``; most states need no decoding for this."""
    if f'"{kind}"'.encode() not in state:
        return []
    return [each.message for each in _status(state).conditions if each.type == kind]


def _status(state: bytes) -> _Status:
    try:
        return _decode(state).status or _Status()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return _Status()
