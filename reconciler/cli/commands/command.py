"""`reconciler command`: perform a command on a workload or a volume set."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.operator import confirm_loss
from reconciler.cli.options import Duration, get_operator_name, load_settings_as_owner, settings_option
from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text, note_at_interrupt
from reconciler.cli.target_arguments import TargetCommand, key_argument
from reconciler.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from reconciler.model.key import Key
    from reconciler.operations.resource_commands import ResourceCommands
    from reconciler.records.store import Records
    from reconciler.records.tables.commands import StoredCommand
    from reconciler.settings import Settings

POLL_SECONDS = 0.05


@click.command(
    cls=TargetCommand,
    epilog="Example: reconciler command volumeset/shop/data createVolumeSnapshot volumeIndex=0 snapshotName=nightly",
)
@key_argument()
@click.argument("name", metavar="[TYPE]", required=False, default="")
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@click.option("--spec", metavar="FILE", default="", help="The fields as YAML; - reads standard input.")
@click.option("--yes", is_flag=True, help="Do not ask before data is destroyed.")
@click.option("--wait/--no-wait", default=True, help="Wait until it ended; default: wait.")
@click.option(
    "--timeout", type=Duration(), default=300.0, metavar="TIME", help="How long to wait, such as 20s; default 5m."
)
@click.option("--cancel", metavar="ID", default="", help="Cancel a command that is pending.")
@output_option()
@settings_option
def command(settings_file: Path, key: Key, name: str, fields: tuple[str, ...], **options: Any) -> int:
    """Perform a command on the workload or volume set KEY, or list its commands.

    Workloads take runCronWorkload and stopReplica; volume sets take expandVolume, deleteVolume, createVolumeSnapshot,
    deleteVolumeSnapshot, restoreVolume, verifyVolumeSnapshot, cloneVolumeSnapshot. `location` may be left out if there
    is one; runCronWorkload is then for all. Secret values belong into a --spec FILE. Exits with 1 if a command failed
    or --wait ran out of time.
    """
    from reconciler.clock import SystemClock
    from reconciler.operations.commands import open_existing
    from reconciler.operations.resource_commands import ResourceCommands, parse_fields
    from reconciler.queries.existence import check_key

    spec = _read_spec(options["spec"])
    if (options["cancel"] and name) or (not name and (fields or spec)):
        raise click.UsageError("name the TYPE of a command, or the ID of one with --cancel")
    spec = {**spec, **parse_fields(key.kind, name, fields)}
    settings = load_settings_as_owner(settings_file)
    clock = SystemClock()
    with open_existing(settings, clock) as records:
        commands = ResourceCommands(settings, records, clock, get_operator_name())
        if options["cancel"]:
            click.echo(commands.cancel(key, options["cancel"]))
            return 0
        if not name:
            check_key(records, key)
            _print_commands(list(records.commands.list(key)), options["output"])
            return 0
        specs = commands.prepare(key, name, spec)
        _confirm_destruction(key, name, specs, yes=options["yes"])
        ids = commands.request(key, name, specs)
        woken = _notify_daemon(settings)
        if woken and options["wait"]:
            with note_at_interrupt(f"it goes on; to see it: reconciler command {key}"):
                _wait_for_commands(settings, records, ids, time.monotonic() + options["timeout"])
        created = [command for command in map(records.commands.get, ids) if command is not None]
        return _report_commands(commands, created, options["output"], woken=woken)


def _read_spec(file: str) -> dict[str, Any]:
    """The mapping in ``file``; {} if there is none. Raises UsageError."""
    from reconciler.documents.reader import parse_documents
    from reconciler.input_files import read_file, shown_name

    if not file:
        return {}
    reading, name = parse_documents(read_file(file)), shown_name(file)
    for fault in reading.faults:
        raise UsageError(f"{name}:{fault.line}:{fault.column}: {fault.message}")
    values = [document.value for document in reading.documents]
    if len(values) != 1 or not isinstance(values[0], dict):
        raise UsageError(f"{name}: a spec is one mapping of fields, such as volumeIndex: 0")
    spec: dict[str, Any] = values[0]
    return spec


def _confirm_destruction(key: Key, name: str, specs: Sequence[dict[str, Any]], *, yes: bool) -> None:
    """Let the operator confirm what is destroyed."""
    from reconciler.engines.command_types import describe_destruction

    for spec in specs:
        if what := describe_destruction(name, spec):
            confirm_loss(f"{name} destroys {what} of {key} at {spec['location']}", yes=yes)


def _notify_daemon(settings: Settings) -> bool:
    from reconciler.daemon.wake import COMMANDS, wake_daemon

    return wake_daemon(settings.state, COMMANDS, "command")


def _wait_for_commands(settings: Settings, records: Records, ids: Sequence[str], deadline: float) -> None:
    """Return when all have ended. Raises RefusedError after ``deadline``, or when the daemon has ended."""
    from reconciler.daemon.lock import find_lock_holder

    while any(command is not None and command.is_open for command in map(records.commands.get, ids)):
        if find_lock_holder(settings.state) is None:
            raise RefusedError("the daemon ended before the command did; it goes on with it when it runs again")
        if time.monotonic() >= deadline:
            raise RefusedError(f"the command has not ended in time, and goes on: {', '.join(ids)}")
        time.sleep(POLL_SECONDS)


def _report_commands(commands: ResourceCommands, created: list[StoredCommand], output: Output, *, woken: bool) -> int:
    """Show what was requested and what became of it; returns the exit code."""
    from reconciler.records.tables.commands import CommandStage
    from reconciler.render.commands import command_line

    if not output.is_text:
        _print_commands(created, output)
    for stored_command in created if output.is_text else ():
        click.echo(f"{stored_command.id}  {command_line(stored_command)}")
    if not woken:
        waits = "it waits for one: reconciler run" if any(map(commands.needs_daemon, created)) else ""
        click.echo(f"no daemon runs; {waits or 'the next `reconciler apply` performs it'}", err=not output.is_text)
    return int(any(command.stage in (CommandStage.FAILED, CommandStage.CANCELLED) for command in created))


def _print_commands(commands: list[StoredCommand], output: Output) -> None:
    from reconciler.clock import SystemClock
    from reconciler.render.commands import command_document, command_table
    from reconciler.terminal.folding import is_colour_terminal

    if not output.is_text:
        print_document(output, {"items": [command_document(command) for command in commands]}, "items")
    elif commands:
        echo_text(command_table(commands, SystemClock().now(), is_colour_terminal(sys.stdout)))
    else:
        echo_text("nothing was requested", err=True)
