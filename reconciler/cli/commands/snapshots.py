"""`reconciler snapshots`: list the snapshots of volumes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load, parse_key, read_records, settings_option

if TYPE_CHECKING:
    from reconciler.model.key import Key


@click.command(epilog="Example: reconciler snapshots volumeset/shop/data")
@click.argument("key", required=False, callback=parse_key)
@click.option("--deleted", is_flag=True, help="The final snapshots of deleted volumes instead.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@settings_option
def command(settings_file: Path, key: Key | None, deleted: bool, output: str) -> None:
    """List the snapshots of the volume set KEY, or of all volume sets, as they were last observed.

    `reconciler command` takes, deletes and restores them. --deleted lists what `createFinalSnapshot` retained of
    volumes that were deleted on this host; `reconciler volume` deletes these.
    """
    from reconciler.cli.output.printing import echo_json
    from reconciler.clock import SystemClock
    from reconciler.queries.snapshots import list_final_snapshots, list_snapshots
    from reconciler.render.snapshots import snapshot_document, snapshot_table

    settings = load(settings_file)
    records = read_records(settings)
    found = list_final_snapshots(settings, key) if deleted else list_snapshots(records, key)
    if output == "json":
        echo_json({"items": [snapshot_document(each) for each in found]})
        return
    click.echo(snapshot_table(found, SystemClock().now()) or "there are no snapshots", err=not found)
