"""Commands on resources: rows in the records, which the daemon performs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response

from reconciler.access.references import permission_to_refer
from reconciler.api.call import Call, read_as
from reconciler.api.problems import Problem
from reconciler.api.routes.admission import admit_change
from reconciler.api.routes.reports import command_document
from reconciler.api.table import ANY, Operation
from reconciler.daemon.wake import COMMANDS as WAKE
from reconciler.daemon.wake import wake_daemon
from reconciler.engines.command_types import COMMANDS, permission_for
from reconciler.engines.volume_commands import CLONE, parse_source
from reconciler.engines.workload_commands import OverridesRefused, refusal_text
from reconciler.errors import EngineError, NotFoundError, RefusedError
from reconciler.manifests.links import full_form
from reconciler.model.key import Key
from reconciler.operations.commands import open_existing
from reconciler.operations.resource_commands import ResourceCommands
from reconciler.records.tables.commands import StoredCommand


class RequestedCommand(msgspec.Struct, forbid_unknown_fields=True):
    """A command: its type, and the fields that the type has."""

    type: str
    spec: dict[str, Any] = {}


async def create_command(call: Call) -> Response:
    """Request a command; one without a location runs at every location of a cron workload."""
    key = call.key()
    command_types = COMMANDS.get(key.kind, {})
    if not command_types:
        raise Problem(404, f"a {key.kind} takes no commands")
    new_command = read_as(await call.body(), RequestedCommand)
    if new_command.type not in command_types:
        raise Problem(
            400, f"a {key.kind} has no command {new_command.type[:60]!r}; there are: {', '.join(command_types)}"
        )
    call.require(permission_for(new_command.type), key)
    if not call.reader.records.applied.exists(key):
        raise NotFoundError(f"there is no {key}")
    _admit_source(call, new_command)
    _admit_overrides(call, key, new_command)
    commands = await _request_commands(call, key, new_command)
    wake_daemon(call.api.settings.state, WAKE, "command")
    documents = [command_document(command, call.org) for command in commands]
    if len(documents) > 1:
        return call.respond({"kind": "list", "itemKind": "command", "items": documents}, 201)
    return call.respond(documents[0], 201, {"Location": f"{full_form(key, call.org)}/-command/{commands[0].id}"})


async def cancel_command(call: Call) -> Response:
    """Cancel a command that is still pending."""
    key = call.existing("view")
    name = call.request.path_params["id"]
    command = call.reader.records.commands.get(name)
    if command is None or command.key != key:
        raise NotFoundError(f"{key} has no command {name[:60]!r}")
    call.require(permission_for(command.type), key)
    message = await asyncio.to_thread(_cancel_in_records, call, key, name)
    return call.respond({"message": message})


def _admit_source(call: Call, command: RequestedCommand) -> None:
    """Refuse data of a volume set that the caller may not refer to. Raises Problem 400, 403 and 404."""
    if command.type == CLONE and isinstance(source := command.spec.get("source"), str):
        try:
            key = parse_source(source)
        except EngineError as error:
            raise Problem(400, str(error)) from None
        call.require(permission_to_refer(key.kind), key)


def _admit_overrides(call: Call, key: Key, command: RequestedCommand) -> None:
    """Refuse references of a container with overrides that the caller may not make. Raises Problem 400 and 403."""
    if not command.spec.get("containerOverrides"):
        return
    from reconciler.changes.commits import make_manifest
    from reconciler.operations.override_check import overridden_manifest

    body = call.recorded_body(key)
    try:
        manifest = overridden_manifest(key, body, command.type, command.spec)
    except EngineError as error:
        raise Problem(400, str(error)) from None
    if manifest is not None:
        admit_change(call, key, make_manifest(key, body), manifest)


async def _request_commands(call: Call, key: Key, command: RequestedCommand) -> list[StoredCommand]:
    """The commands of ``command``; a refusal names only what the caller may view. Raises Problem 400."""
    try:
        return await asyncio.to_thread(_record_commands, call, key, command)
    except OverridesRefused as refused:
        from reconciler.api.visibility import visible_findings

        findings = visible_findings(refused.findings, (), lambda other: other == key or call.may("view", other))
        raise Problem(400, refusal_text(findings)) from None


def _record_commands(call: Call, key: Key, command: RequestedCommand) -> list[StoredCommand]:
    with open_existing(call.api.settings, call.api.clock) as records:
        commands = ResourceCommands(call.api.settings, records, call.api.clock, call.caller.principal)
        try:
            specs = commands.prepare(key, command.type, command.spec)
        except NotFoundError:
            raise
        except OverridesRefused:  # its words depend on what the caller may view
            raise
        except RefusedError as error:
            raise Problem(400, str(error)) from None
        ids = commands.request(key, command.type, specs)
        return [stored_command for text in ids if (stored_command := records.commands.get(text)) is not None]


def _cancel_in_records(call: Call, key: Key, name: str) -> str:
    with open_existing(call.api.settings, call.api.clock) as records:
        return ResourceCommands(call.api.settings, records, call.api.clock, call.caller.principal).cancel(key, name)


_PLACES = ("/org/{org}/{kind}/{name}/-command", "/org/{org}/gvc/{gvc}/{kind}/{name}/-command")

OPERATIONS = (
    *(
        Operation(
            "POST",
            path,
            create_command,
            "Request a command.",
            "exec.TYPE",
            {201: "The command."},
            body=RequestedCommand,
            changes=True,
        )
        for path in _PLACES
    ),
    *(
        Operation("DELETE", path + "/{id}", cancel_command, "Cancel a pending command.", ANY, changes=True)
        for path in _PLACES
    ),
)
