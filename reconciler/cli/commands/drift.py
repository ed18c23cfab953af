"""`reconciler drift`: show what differs at a location from what was applied."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import example_of, load_settings_as_owner, read_records, settings_option
from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text
from reconciler.cli.target_arguments import TargetCommand, key_argument
from reconciler.terminal.folding import is_colour_terminal

if TYPE_CHECKING:
    from reconciler.model.key import Key
    from reconciler.records.store import Records
    from reconciler.records.tables.drift import DriftCheck
    from reconciler.settings import Settings


@click.command(cls=TargetCommand, epilog=example_of("drift"))
@key_argument(required=False)
@output_option()
@settings_option
def command(settings_file: Path, key: Key | None, output: Output) -> None:
    """Show the changes that were made at a location and not in Git: all of them, or those of KEY.

    While a daemon runs, its last check is shown; else the locations are checked now. The printed rules permit the same
    differences from now on, once they are added to the settings.
    """
    from reconciler.queries.existence import check_key
    from reconciler.render.drift import drift_document, drift_lines

    settings = load_settings_as_owner(settings_file)
    records = read_records(settings)
    if key is not None:
        check_key(records, key)
    at, rows = _check_drift(settings, records)
    rows = [row for row in rows if key is None or row.key == str(key)]
    if not output.is_text:
        print_document(output, drift_document(at, rows), "items")
        return
    for line in drift_lines(at, rows, is_colour_terminal(sys.stdout)):
        echo_text(line)


def _check_drift(settings: Settings, records: Records) -> DriftCheck:
    """The last check of the daemon, else a check now. Raises RefusedError where a location does not answer."""
    from reconciler.daemon.lock import find_lock_holder

    if find_lock_holder(settings.state) is not None:
        return records.drifts.last_check()
    import asyncio

    from reconciler.clock import SystemClock
    from reconciler.drift.monitor import check_now

    return asyncio.run(check_now(settings, records, SystemClock()))
