"""Reads conditions, messages and health from the engine state of a record, and decodes as little as possible."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from reconciler.manifests.field_schema import recorded_sentences
from reconciler.model.key import Kind
from reconciler.model.record import Health, Record
from reconciler.reasons import ConditionType, Reason


class EngineCondition(NamedTuple):
    """A condition that an engine reports; ``location`` is "" in the state of a deployment, which has one itself."""

    type: ConditionType
    reason: Reason
    message: str
    location: str = ""


class _Condition(msgspec.Struct):
    type: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    message: str = ""
    conditions: list[_Condition] = []


class _Report(msgspec.Struct):
    location: str = ""
    conditions: list[_Condition] = []


class _State(msgspec.Struct):
    status: _Status | None = None
    locations: list[_Report] = []


SHOWN_BY_BODY = frozenset({Kind.GVC, Kind.VOLUMESET, Kind.DOMAIN})
"""Kinds with fields that have no effect here, and whose engines do not report them."""
_SHOWN = re.compile(rb'"conditions":\s*\[\s*\{')
_TYPES = frozenset(map(str, ConditionType))


def message_of(state: bytes) -> str:
    """The engine's message for a deployment in progress or not healthy (docs/platform/workload.md#deployments).

    Without one, why a condition makes it Unhealthy.
    """
    own = (_decode_state(state).status or _Status()).message
    messages = (
        engine_condition.message for engine_condition in engine_conditions(state) if engine_condition.type.degrades
    )
    return own or "; ".join(dict.fromkeys(messages))


def health_with_conditions(health: Health, state: bytes) -> Health:
    """The health of what an engine runs, as it is recorded: Unhealthy too with a condition that degrades it."""
    if health.is_good and any(engine_condition.type.degrades for engine_condition in engine_conditions(state)):
        return Health.UNHEALTHY
    return health


def engine_conditions(state: bytes) -> list[EngineCondition]:
    """The conditions that engines report; most states have none and need no decoding for this."""
    if not _SHOWN.search(state):
        return []
    engine_state = _decode_state(state)
    reports = [_Report("", (engine_state.status or _Status()).conditions), *engine_state.locations]
    return [
        EngineCondition(
            ConditionType(condition.type), Reason.from_stored(condition.reason), condition.message, report.location
        )
        for report in reports
        for condition in report.conditions
        if condition.type in _TYPES
    ]


def record_conditions(record: Record) -> list[EngineCondition]:
    """The conditions that engines report of ``record``, and NotEnforced for fields of it without effect.

    Those of a workload are in the report of the engine that runs it.
    """
    conditions = engine_conditions(record.state)
    if record.key.kind in SHOWN_BY_BODY and record.health is not Health.RECORDED:
        sentences = recorded_sentences(str(record.key.kind), record.body)
        conditions += [
            EngineCondition(ConditionType.NOT_ENFORCED, Reason.NOT_ENFORCED, sentence) for sentence in sentences
        ]
    return conditions


def _decode_state(state: bytes) -> _State:
    try:
        return msgspec.json.decode(state, type=_State)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return _State()
