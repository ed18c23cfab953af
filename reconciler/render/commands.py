"""Commands on resources as a table, and as JSON values in the form of the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.engines.command_types import without_secrets
from reconciler.records.tables.commands import CommandStage, StoredCommand
from reconciler.render.layout import align_columns, strip_control
from reconciler.times import format_iso_time, format_short_duration

_COLOURS = {
    CommandStage.COMPLETED.value: "green",
    CommandStage.FAILED.value: "red",
    CommandStage.PENDING.value: "yellow",
    CommandStage.RUNNING.value: "yellow",
}


def command_table(commands: Sequence[StoredCommand], now: float, colour: bool) -> str:
    """A line for each command, with its age and the operator."""
    rows = [("ID", "TYPE", "LOCATION", "STAGE", "AGE", "BY", "MESSAGE")]
    for command in commands:
        message = strip_control("; ".join(command.messages))
        past = format_short_duration(max(0.0, now - command.created))
        rows.append(
            (command.id, command.type, command.location, command.stage.value, past, strip_control(command.by), message)
        )
    return align_columns(rows, colours=_COLOURS if colour else None)


def command_line(command: StoredCommand) -> str:
    """One command on one line, without its id."""
    message = strip_control("; ".join(command.messages))
    return f"{command.type} at {command.location}: {command.stage}{': ' if message else ''}{message}"


def command_document(command: StoredCommand) -> dict[str, Any]:
    """A command in the form of docs/platform/fields.md#http-api, without secret values."""
    return {
        "id": command.id,
        "type": command.type,
        "lifecycleStage": command.stage.value,
        "spec": without_secrets(command.spec),
        "status": {"messages": list(command.messages)},
        "created": format_iso_time(command.created),
    }
