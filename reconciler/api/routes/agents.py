"""Agents: the bootstrap file with the registration token, and what agents report."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call, NoBody, read_as
from reconciler.api.problems import Problem
from reconciler.api.table import ANY, Operation
from reconciler.errors import NotFoundError
from reconciler.manifests.links import full_form
from reconciler.model.key import Key, Kind
from reconciler.times import format_iso_time

_Text = Annotated[str, msgspec.Meta(max_length=250)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class AgentEnvironment(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where an agent runs."""

    cpu_platform: _Text = msgspec.field(name="cpuPlatform", default="")
    image: _Text = ""
    id: _Text = ""
    machine_type: _Text = msgspec.field(name="machineType", default="")
    zone: _Text = ""
    internal_ip: _Text = msgspec.field(name="internalIP", default="")
    hostname: _Text = ""
    vpc: _Text = ""
    subnet: _Text = ""
    account_id: _Text = msgspec.field(name="accountId", default="")
    cloud_provider: _Text = msgspec.field(name="cloudProvider", default="")


class AgentReport(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What an agent reports: where it runs, and the numbers of its services and peers."""

    env: AgentEnvironment = msgspec.field(default_factory=AgentEnvironment)
    service_count: _Count = 0
    peer_count: _Count = 0


def issue_bootstrap(call: Call, name: str) -> dict[str, str | None]:
    """The content of a bootstrap file of the agent ``name``, with a new token; the former token ends.

    The answer has the token, and an answer that is repeated for an ``Idempotency-Key`` has not.
    """
    registration, token = call.api.store.agents.issue(name)
    call.show_once("registrationToken")
    settings = call.api.settings.api
    return {
        "agentId": registration.id,
        "agentLink": full_form(Key(Kind.AGENT, "", name), call.org),
        "hubEndpoint": (settings.endpoint if settings is not None else "") or None,
        "registrationToken": token,
    }


async def make_bootstrap(call: Call) -> Response:
    """Make a bootstrap file for an agent that exists, such as one that a manifest declares."""
    key = _require_agent(call, "edit")
    await call.refuse_body()
    return call.respond(issue_bootstrap(call, key.name), 201)


async def read_info(call: Call) -> Response:
    """What an agent reported last."""
    key = _require_agent(call, "view")
    agent = call.api.store.agents.find(key.name)
    # What a deleted agent of the same name reported is not shown.
    if agent is None or agent.reported is None or agent.life != call.reader.records.applied.created_at(key):
        return call.respond({**msgspec.to_builtins(AgentReport()), "lastActive": None})
    report = msgspec.json.decode(agent.report, type=AgentReport)
    return call.respond({**msgspec.to_builtins(report), "lastActive": format_iso_time(agent.reported)})


async def report_info(call: Call) -> Response:
    """Take what an agent reports of itself."""
    key = _make_key(call.request.path_params["name"])
    if call.caller.principal != str(key):
        raise Problem(403, f"{call.caller.principal} is not {key}: an agent reports with its registration token")
    report = read_as(await call.body(), AgentReport)
    call.api.store.agents.record_report(key.name, msgspec.json.encode(report))
    return Response(status_code=204)


def _require_agent(call: Call, permission: str) -> Key:
    key = _make_key(call.request.path_params["name"])
    call.require(permission, key)
    if not call.reader.records.applied.exists(key):
        raise NotFoundError(f"there is no {key}")
    return key


def _make_key(name: str) -> Key:
    return Key(Kind.AGENT, "", name)


_AGENT = "/org/{org}/agent/{name}/"

OPERATIONS = (
    Operation(
        "POST",
        _AGENT + "-bootstrap",
        make_bootstrap,
        "Make a bootstrap file with a new token.",
        "edit",
        {201: "The bootstrap file."},
        body=NoBody,
        optional_body=True,
        changes=True,
    ),
    Operation("GET", _AGENT + "-info", read_info, "Read what an agent reports.", "view"),
    # It is a measurement that comes again and again, and no change that belongs to the audit log.
    Operation(
        "PUT",
        _AGENT + "-info",
        report_info,
        "Report of an agent, with its token.",
        ANY,
        {204: "Recorded."},
        body=AgentReport,
    ),
)
