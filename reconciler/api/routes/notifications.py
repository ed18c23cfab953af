"""Requests about notifications: the same as `reconciler mute` and `reconciler notify test`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call, read_as
from reconciler.api.problems import Problem
from reconciler.api.table import Handler, Operation
from reconciler.model.key import Key, Kind
from reconciler.operations.commands import open_existing
from reconciler.operations.notifications import mute_target, send_test, unmute_target
from reconciler.records.notifications.troubles import Mute
from reconciler.records.store import Records
from reconciler.times import parse_time


class MuteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What nothing is sent about, why, and until when."""

    target: str
    reason: str
    until: str


class UnmuteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What is muted no longer."""

    target: str


class RuleTestRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The name of a rule; "" for all."""

    rule: str = ""


async def record_mute(call: Call) -> Response:
    """Send nothing about a target until a time."""
    _require_edit(call)
    request, now = read_as(await call.body(), MuteRequest), call.api.clock.now()
    try:
        until = parse_time(request.until)
    except ValueError:
        raise Problem(400, f"until: {request.until[:40]!r} is no time such as 2027-01-31T12:00:00Z") from None
    if until <= now:
        raise Problem(400, f"until: {request.until} has passed")
    entry = Mute(request.target, " ".join(request.reason.split()), call.caller.principal, now, until)
    message = await _carry_out(call, lambda records: mute_target(call.api.settings, records, entry))
    return call.respond({"message": message})


async def end_mute(call: Call) -> Response:
    """End a mute."""
    _require_edit(call)
    request = read_as(await call.body(), UnmuteRequest)
    return call.respond({"message": await _carry_out(call, lambda records: unmute_target(records, request.target))})


async def send_rule_test(call: Call) -> Response:
    """Send a test message to the channels of a rule."""
    _require_edit(call)
    rule, now = read_as(await call.body(optional=True), RuleTestRequest).rule, call.api.clock.now()
    by = call.caller.principal
    numbers = await _carry_out(call, lambda records: send_test(call.api.settings, records, rule, by, now))
    return call.respond({"ids": numbers}, 202)


def _require_edit(call: Call) -> None:
    call.require("edit", Key(Kind.ORG, "", call.org))


async def _carry_out(call: Call, work: Callable[[Records], Any]) -> Any:
    def run() -> Any:
        with open_existing(call.api.settings, call.api.clock) as records:
            return work(records)

    return await asyncio.to_thread(run)


_ANSWERS: dict[int, str] = {200: "What was recorded.", 404: "There is no such target.", 409: "The request is refused."}


def _make_operation(name: str, answer: Handler, summary: str, body: type[msgspec.Struct]) -> Operation:
    return Operation("POST", f"/org/{{org}}/{name}", answer, summary, "edit", _ANSWERS, body=body, changes=True)


OPERATIONS = (
    _make_operation("-mute", record_mute, "Send nothing about something for a while.", MuteRequest),
    _make_operation("-unmute", end_mute, "End a mute.", UnmuteRequest),
    _make_operation("-notify-test", send_rule_test, "Send a test message by a rule.", RuleTestRequest)._replace(
        optional_body=True, answers={202: "The numbers of the messages.", 409: "There is no such rule."}
    ),
)
