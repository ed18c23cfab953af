"""Reads beside a resource: its access report, events, deployments and commands."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.documents import deployment_document
from reconciler.api.problems import Problem
from reconciler.api.table import Operation
from reconciler.engines.command_types import without_secrets
from reconciler.errors import NotFoundError
from reconciler.manifests.links import full_form
from reconciler.model.key import Key, Kind
from reconciler.records.tables.commands import StoredCommand
from reconciler.records.tables.events import Event
from reconciler.times import format_iso_time

_EVENTS, _MOST_EVENTS = 50, 1000
_COMMANDS = 100
_REPORTS = "viewAccessReport"


async def read_access_report(call: Call) -> Response:
    """Who has which permission on a resource, and by which policy."""
    key = call.existing(_REPORTS if call.kind() is Kind.ORG else "view")
    permissions: dict[str, list[dict[str, Any]]] = {}
    for entry in call.reader.access().report(key, lambda: call.recorded_body(key)):
        binding = {
            "principalLink": _build_principal_link(entry.principal, call.org),
            "grantingPolicyLink": full_form(entry.policy, call.org),
            "grantedPermissions": list(entry.granted),
        }
        permissions.setdefault(entry.permission, []).append(binding)
    return call.respond(
        {"permissions": [{"name": name, "bindings": bindings} for name, bindings in permissions.items()]}
    )


async def read_event_log(call: Call) -> Response:
    """The last events of a resource, oldest first; those of a deleted one too."""
    key = call.key()
    call.require("view", key)
    events = call.reader.records.events.list(key, limit=call.count("last", _EVENTS, _MOST_EVENTS))
    if not events and key.kind is not Kind.ORG and not call.reader.records.applied.exists(key):
        raise NotFoundError(f"there is no {key}")
    return call.respond(
        {"kind": "list", "itemKind": "event", "items": [_build_event_document(event) for event in events]}
    )


async def list_deployments(call: Call) -> Response:
    """The deployments of a workload, one for each location."""
    key = _require_workload(call)
    documents = [
        deployment_document(record, call.org) for record in call.reader.records.applied.get(key) if record.location
    ]
    items = [document for document in documents if document is not None]
    return call.respond({"kind": "list", "itemKind": "deployment", "items": items})


async def read_deployment(call: Call) -> Response:
    """The deployment of a workload at a location."""
    key = _require_workload(call)
    name = call.request.path_params["location"]
    for record in call.reader.records.applied.get(key):
        if record.location == name and (document := deployment_document(record, call.org)) is not None:
            return call.respond(document)
    raise NotFoundError(f"{key} has no deployment at {name!r}")


async def list_commands(call: Call) -> Response:
    """The last commands on a resource, newest first."""
    key = call.existing("view")
    commands = call.reader.records.commands.list(key, limit=_COMMANDS)
    return call.respond(
        {"kind": "list", "itemKind": "command", "items": [command_document(command, call.org) for command in commands]}
    )


async def read_command(call: Call) -> Response:
    """One command on a resource."""
    key = call.existing("view")
    name = call.request.path_params["id"]
    command = call.reader.records.commands.get(name)
    if command is None or command.key != key:
        raise Problem(404, f"{key} has no command {name[:60]!r}")
    return call.respond(command_document(command, call.org))


def command_document(command: StoredCommand, org: str) -> dict[str, Any]:
    """A command as the API shows it; values of variables are masked."""
    return {
        "kind": "command",
        "id": command.id,
        "type": command.type,
        "lifecycleStage": str(command.stage),
        "spec": without_secrets(command.spec),
        "status": {"messages": list(command.messages)},
        "created": format_iso_time(command.created),
        "createdBy": command.by,
        "links": [{"rel": "self", "href": f"{full_form(command.key, org)}/-command/{command.id}"}],
    }


def _build_principal_link(principal: str, org: str) -> str:
    """The full link to a principal, which is a key, or a full link into another org already."""
    return principal if principal.startswith("/") else full_form(Key.parse(principal), org)


def _require_workload(call: Call) -> Key:
    key = call.existing("view")
    if key.kind is not Kind.WORKLOAD:
        raise Problem(404, f"a {key.kind} has no deployments")
    return key


def _build_event_document(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "at": format_iso_time(event.at),
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "location": event.location,
    }


def _each_place(suffix: str) -> tuple[str, str]:
    return f"/org/{{org}}/{{kind}}/{{name}}/{suffix}", f"/org/{{org}}/gvc/{{gvc}}/{{kind}}/{{name}}/{suffix}"


_ORG = "/org/{org}"
OPERATIONS = (
    Operation("GET", f"{_ORG}/-accessreport", read_access_report, "Read who may do what to the org.", _REPORTS),
    Operation(
        "GET", f"{_ORG}/-eventlog", read_event_log, "Read the event log of the org.", "view", parameters=("last",)
    ),
    *(
        Operation("GET", path, read_access_report, "Read who has which permission.", "view")
        for path in _each_place("-accessreport")
    ),
    *(
        Operation("GET", path, read_event_log, "Read the event log.", "view", parameters=("last",))
        for path in _each_place("-eventlog")
    ),
    *(Operation("GET", path, list_commands, "List commands.", "view") for path in _each_place("-command")),
    *(Operation("GET", path, read_command, "Read a command.", "view") for path in _each_place("-command/{id}")),
    Operation("GET", "/org/{org}/gvc/{gvc}/{kind}/{name}/deployment", list_deployments, "List deployments.", "view"),
    Operation(
        "GET", "/org/{org}/gvc/{gvc}/{kind}/{name}/deployment/{location}", read_deployment, "Read a deployment.", "view"
    ),
)
