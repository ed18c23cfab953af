"""What the state of a record says about a deployment, read for as little as most of them need."""

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
    """What an engine says in its condition ``kind``; most states are not even decoded for that."""
    if f'"{kind}"'.encode() not in state:
        return []
    return [each.message for each in _status(state).conditions if each.type == kind]


def _status(state: bytes) -> _Status:
    try:
        return _decode(state).status or _Status()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return _Status()
