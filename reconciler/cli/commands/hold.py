"""`reconciler hold`: make the requests of a workload wait."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import (
    Duration,
    example_of,
    load_settings_as_owner,
    read_records,
    settings_option,
    shared_option,
)
from reconciler.cli.target_arguments import TargetCommand, key_argument

if TYPE_CHECKING:
    from reconciler.model.key import Key


PATIENCE = 15.0
"""Seconds in which each location reports that a hold is in force; a data plane that reloads needs one or two."""

POLL_SECONDS = 0.05


@click.command(cls=TargetCommand, epilog=example_of("hold"))
@key_argument()
@shared_option("hold", "--for", "seconds", type=Duration())
@shared_option("hold", "--reason", default="")
@shared_option("hold", "--release")
@settings_option
def command(settings_file: Path, key: Key, seconds: float | None, reason: str, release: bool) -> None:
    """Make new requests to the workload KEY on this host wait, and release them after TIME, or with --release.

    Requests that replicas work on already are answered. At most `host.hold.requests` requests wait, and more are
    refused. The command returns when the hold is in force. Status, `reconciler describe` and `reconciler events` show
    who holds them and why.
    """
    if release == (seconds is not None):
        raise click.UsageError("write either --for TIME or --release")
    if seconds is None:
        run_operation(settings_file, lambda operations: operations.release(key), "refresh")
    elif run_operation(settings_file, lambda operations: operations.hold(key, seconds, reason), "refresh"):
        click.echo(_await_confirmation(settings_file, key))


def _await_confirmation(settings_file: Path, key: Key) -> str:
    """``in force at here``, once each location has reported it by an event. Raises RefusedError after 15 seconds."""
    from reconciler.engines.plugin import is_holding_engine
    from reconciler.errors import RefusedError
    from reconciler.operations.commands import running_here
    from reconciler.reasons import Reason

    settings = load_settings_as_owner(settings_file)
    deadline = time.monotonic() + PATIENCE
    while True:
        # A reader without access to the records gets copies of them, so they are opened anew.
        with closing(read_records(settings)) as records:
            places = {
                record.location
                for record in running_here(settings, records, key, "requests to hold", is_holding_engine)
            }
            since = max(
                (traffic_hold.at for traffic_hold in records.traffic_holds.all() if traffic_hold.key == key),
                default=0.0,
            )
            events = [event for event in records.events.list(key) if event.at >= since]
            reported = {event.location for event in events if event.reason == Reason.HOLDING_REQUESTS}
        if places <= reported:
            return f"in force at {', '.join(sorted(places))}"
        if time.monotonic() >= deadline:
            missing = ", ".join(sorted(places - reported))
            raise RefusedError(f"not in force at {missing} after {PATIENCE:g} s; see: reconciler describe {key}")
        time.sleep(POLL_SECONDS)
