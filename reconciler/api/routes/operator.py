"""What operators request of a running daemon: the same as the commands of `reconciler`, for sources and resources."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from reconciler.access.rules import APPROVE
from reconciler.api.call import Call, NoBody, read_as
from reconciler.api.problems import JSON, Problem
from reconciler.api.table import TEXT, Handler, Operation
from reconciler.daemon.wake import REFRESH, wake_daemon
from reconciler.errors import SourceNotFound
from reconciler.model.key import Key, Kind
from reconciler.operations.approval import record_approval, record_refusal
from reconciler.operations.commands import PREVIOUS, OperatorCommands, open_existing, run_operator_command
from reconciler.operations.notifications import mute_target, send_test, unmute_target
from reconciler.queries.existence import find_source
from reconciler.queries.history import list_runs
from reconciler.queries.resources import list_sources
from reconciler.records.notifications.troubles import Mute
from reconciler.records.store import Records
from reconciler.render.history import run_document
from reconciler.render.layout import strip_control
from reconciler.render.sources import source_document, source_lines
from reconciler.times import parse_time

_MOST_RUNS = 200


class SuspensionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Why, and until when ("": until it is resumed)."""

    reason: str = ""
    until: str = ""


class RequestHold(msgspec.Struct, forbid_unknown_fields=True):
    """For how many seconds requests wait, and why."""

    seconds: float
    reason: str = ""


class Rollback(msgspec.Struct, forbid_unknown_fields=True):
    """The revision, as `reconciler rollback` takes it; "" for the last good one before the applied one."""

    revision: str = ""
    reason: str = ""
    force: bool = False


class Approval(msgspec.Struct, forbid_unknown_fields=True):
    """The digest of a plan, or of its steps that wait."""

    digest: str


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


async def approve_plan(call: Call) -> Response:
    """Approve the steps of a plan that wait."""
    _require_of_org(call, APPROVE)
    digest = read_as(await call.body(), Approval).digest
    message = await asyncio.to_thread(record_approval, call.api.settings, digest, call.caller.principal)
    wake_daemon(call.api.settings.state, None, "approval")
    return call.respond({"message": message})


class RefusalRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The digest of a plan, or of its steps that wait, and why they are refused."""

    digest: str
    reason: str = ""


async def refuse_plan(call: Call) -> Response:
    """Refuse the steps of a plan that wait."""
    _require_of_org(call, APPROVE)
    asked = read_as(await call.body(), RefusalRequest)
    by, settings = call.caller.principal, call.api.settings
    message = await asyncio.to_thread(record_refusal, settings, asked.digest, by, asked.reason)
    wake_daemon(settings.state, None, "refusal")
    return call.respond({"message": message})


async def read_sources(call: Call) -> Response:
    """Every source, with its conditions."""
    _require_of_org(call, "view")
    sources = list_sources(call.api.settings, call.reader.records)
    if call.choose_media_type(JSON, TEXT) == TEXT:
        lines = (f"{strip_control(line)}\n" for source in sources for line in source_lines(source))
        return Response("".join(lines), media_type=TEXT)
    items = [source_document(source) for source in sources]
    return call.respond({"kind": "list", "itemKind": "source", "items": items})


async def read_runs(call: Call) -> Response:
    """The last runs of a source that changed something or failed, newest first."""
    _require_of_org(call, "view")
    runs = list_runs(
        call.api.settings, call.reader.records, _find_source_name(call), call.count("last", 20, _MOST_RUNS)
    )
    return call.respond({"kind": "list", "itemKind": "run", "items": [run_document(run) for run in runs]})


async def sync_source(call: Call) -> Response:
    """Make the daemon fetch and run a source now."""
    _require_of_org(call, "edit")
    name = _find_source_name(call)
    await call.refuse_body()
    if not wake_daemon(call.api.settings.state, name, "sync"):
        raise Problem(503, "the daemon does not answer")
    return call.respond({"message": f"the daemon runs {name} now"}, 202)


async def suspend_source(call: Call) -> Response:
    """Suspend a source: nothing of it is applied until it is resumed."""
    _require_of_org(call, "edit")
    return await _suspend_target(call, _find_source_name(call))


async def resume_source(call: Call) -> Response:
    """Resume a source, or let it follow its branch again."""
    _require_of_org(call, "edit")
    name = _find_source_name(call)
    await call.refuse_body()
    return await _carry_out(call, lambda operations: operations.resume(name))


async def roll_back_source(call: Call) -> Response:
    """Roll a source back to an older revision."""
    _require_of_org(call, "edit")
    name = _find_source_name(call)
    rollback = read_as(await call.body(optional=True), Rollback)

    def roll_back(operations: OperatorCommands) -> str:
        try:
            target = operations.rollback_target(name, rollback.revision or PREVIOUS, force=rollback.force)
        except SourceNotFound as error:
            raise Problem(404, str(error)) from None
        return operations.rollback(target, rollback.reason)

    return await _carry_out(call, roll_back)


async def suspend_resource(call: Call) -> Response:
    """Suspend a resource: it is not applied, deleted or healed until it is resumed."""
    return await _suspend_target(call, str(call.existing("edit")))


async def resume_resource(call: Call) -> Response:
    """Resume a resource."""
    key = call.existing("edit")
    await call.refuse_body()
    return await _carry_out(call, lambda operations: operations.resume(str(key)))


async def retry_resource(call: Call) -> Response:
    """Retry the failed steps of a resource now."""
    key = call.existing("edit")
    await call.refuse_body()
    return await _carry_out(call, lambda operations: operations.retry(key))


async def restart_resource(call: Call) -> Response:
    """Replace the replicas of a workload by new ones of the same version."""
    key = call.existing("edit")
    await call.refuse_body()
    return await _carry_out(call, lambda operations: operations.restart(key), REFRESH)


async def hold_requests(call: Call) -> Response:
    """Make new requests to a workload wait."""
    key = call.existing("edit")
    hold = read_as(await call.body(), RequestHold)
    return await _carry_out(call, lambda operations: operations.hold(key, hold.seconds, hold.reason), REFRESH)


async def release_requests(call: Call) -> Response:
    """Release the requests to a workload that wait."""
    key = call.existing("edit")
    return await _carry_out(call, lambda operations: operations.release(key), REFRESH)


async def record_mute(call: Call) -> Response:
    """Send nothing about a target until a time."""
    _require_of_org(call, "edit")
    request, now = read_as(await call.body(), MuteRequest), call.api.clock.now()
    try:
        until = parse_time(request.until)
    except ValueError:
        raise Problem(400, f"until: {request.until[:40]!r} is no time such as 2027-01-31T12:00:00Z") from None
    if until <= now:
        raise Problem(400, f"until: {request.until} has passed")
    entry = Mute(request.target, " ".join(request.reason.split()), call.caller.principal, now, until)
    message = await _use_records(call, lambda records: mute_target(call.api.settings, records, entry))
    return call.respond({"message": message})


async def end_mute(call: Call) -> Response:
    """End a mute."""
    _require_of_org(call, "edit")
    request = read_as(await call.body(), UnmuteRequest)
    return call.respond({"message": await _use_records(call, lambda records: unmute_target(records, request.target))})


async def send_rule_test(call: Call) -> Response:
    """Send a test message to the channels of a rule."""
    _require_of_org(call, "edit")
    rule, now = read_as(await call.body(optional=True), RuleTestRequest).rule, call.api.clock.now()
    by = call.caller.principal
    numbers = await _use_records(call, lambda records: send_test(call.api.settings, records, rule, by, now))
    return call.respond({"ids": numbers}, 202)


async def _suspend_target(call: Call, target: str) -> Response:
    suspension = read_as(await call.body(optional=True), SuspensionRequest)
    until = None
    if suspension.until:
        try:
            until = parse_time(suspension.until)
        except ValueError:
            raise Problem(400, f"until: {suspension.until[:40]!r} is no time such as 2027-01-31T12:00:00Z") from None
        if until <= call.api.clock.now():
            raise Problem(400, f"until: {suspension.until} has passed")
    return await _carry_out(call, lambda operations: operations.suspend(target, suspension.reason, until))


async def _carry_out(call: Call, verb: Callable[[OperatorCommands], str], reason: str = "operator") -> Response:
    """Carry out ``verb`` in the name of the caller, and wake the daemon."""
    run = partial(run_operator_command, call.api.settings, call.api.clock, call.caller.principal, verb)
    message = await asyncio.to_thread(run)
    wake_daemon(call.api.settings.state, None, reason)
    return call.respond({"message": message})


async def _use_records(call: Call, work: Callable[[Records], Any]) -> Any:
    def run() -> Any:
        with open_existing(call.api.settings, call.api.clock) as records:
            return work(records)

    return await asyncio.to_thread(run)


def _find_source_name(call: Call) -> str:
    return find_source(call.api.settings, call.request.path_params["name"]).name


def _require_of_org(call: Call, permission: str) -> None:
    call.require(permission, Key(Kind.ORG, "", call.org))


_ITEMS = ("/org/{org}/{kind}/{name}/", "/org/{org}/gvc/{gvc}/{kind}/{name}/")
_SOURCE = "/org/{org}/source/{name}/"
_ANSWERS: dict[int, str] = {200: "What was recorded.", 409: "The state of the target refuses it."}


def _make_request_operation(path: str, answer: Handler, summary: str, body: type[msgspec.Struct] = NoBody) -> Operation:
    """A request to the daemon; its body is optional where it has no required field."""
    optional = all(not field.required for field in msgspec.structs.fields(body))
    return Operation("POST", path, answer, summary, "edit", _ANSWERS, body=body, optional_body=optional, changes=True)


_OF_ITEMS = (
    ("-suspend", suspend_resource, "Suspend a resource.", SuspensionRequest),
    ("-resume", resume_resource, "Resume a resource.", NoBody),
    ("-retry", retry_resource, "Retry the failed steps of a resource.", NoBody),
    ("-restart", restart_resource, "Restart a workload.", NoBody),
    ("-hold", hold_requests, "Make requests to a workload wait.", RequestHold),
)

OPERATIONS = (
    _make_request_operation("/org/{org}/-mute", record_mute, "Send nothing about something for a while.", MuteRequest),
    _make_request_operation("/org/{org}/-unmute", end_mute, "End a mute.", UnmuteRequest),
    _make_request_operation(
        "/org/{org}/-notify-test", send_rule_test, "Send a test message by a rule.", RuleTestRequest
    )._replace(answers={202: "The numbers of the messages.", 409: "There is no such rule."}),
    _make_request_operation("/org/{org}/-approve", approve_plan, "Approve a plan.", Approval)._replace(
        permission=APPROVE
    ),
    _make_request_operation("/org/{org}/-refuse", refuse_plan, "Refuse a plan.", RefusalRequest)._replace(
        permission=APPROVE
    ),
    Operation("GET", "/org/{org}/source", read_sources, "List the sources.", "view", forms=(TEXT,)),
    Operation(
        "GET",
        _SOURCE + "-runs",
        read_runs,
        "List the runs of a source.",
        "view",
        parameters=("last",),
        bounds={"last": (1, _MOST_RUNS)},
    ),
    _make_request_operation(_SOURCE + "-sync", sync_source, "Run a source now.")._replace(answers={202: "It runs."}),
    _make_request_operation(_SOURCE + "-suspend", suspend_source, "Suspend a source.", SuspensionRequest),
    _make_request_operation(_SOURCE + "-resume", resume_source, "Resume a source."),
    _make_request_operation(_SOURCE + "-rollback", roll_back_source, "Roll a source back.", Rollback),
    *(
        _make_request_operation(path + name, answer, text, body)
        for path in _ITEMS
        for name, answer, text, body in _OF_ITEMS
    ),
    *(
        Operation(
            "DELETE",
            path + "-hold",
            release_requests,
            "Release the requests to a workload.",
            "edit",
            _ANSWERS,
            changes=True,
        )
        for path in _ITEMS
    ),
)
