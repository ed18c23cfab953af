"""`reconciler volume`: manage the data of volumes on this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import confirm
from reconciler.cli.options import load, operator, parse_key, settings_option

if TYPE_CHECKING:
    from reconciler.model.key import Key


@click.group(epilog="Example: reconciler volume delete-final-snapshot volumeset/shop/old 0-20260131T120000Z")
def command() -> None:
    """Manage the data of volumes on this host, apart from the commands on volume sets that exist.

    `reconciler command` has those.
    """


@command.command(
    short_help="Delete what was retained of a deleted volume.",
    epilog="Example: reconciler volume delete-final-snapshot volumeset/shop/old 0-20260131T120000Z",
)
@click.argument("key", callback=parse_key)
@click.argument("name")
@click.option("--location", metavar="NAME", default="", help="Where, if several have one of this name.")
@click.option("--yes", is_flag=True, help="Do not ask before the data is deleted.")
@settings_option
def delete_final_snapshot(settings_file: Path, key: Key, name: str, location: str, yes: bool) -> None:
    """Delete the final snapshot NAME of a deleted volume of KEY.

    `reconciler snapshots --deleted` lists them. Nothing else deletes them.
    """
    from reconciler.clock import SystemClock
    from reconciler.operations.commands import open_existing
    from reconciler.operations.final_snapshots import FinalSnapshot

    settings, clock = load(settings_file), SystemClock()
    with open_existing(settings, clock) as records:
        snapshot = FinalSnapshot(settings, key, name, location)
        confirm(f"{snapshot} is deleted, and with it the last copy of the data on this host", yes=yes)
        click.echo(snapshot.delete(records, clock, operator()))
