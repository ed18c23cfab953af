"""`reconciler events`: show events of resources and sources."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load, parse_target, read_records, settings_option
from reconciler.cli.output.printing import coloured

if TYPE_CHECKING:
    from reconciler.model.key import Key

_POLL_SECONDS = 0.2


@click.command(epilog="Example: reconciler events workload/shop/api --follow")
@click.argument("key", required=False, callback=parse_target)
@click.option("-f", "--follow", is_flag=True, help="Also show new events as they come.")
@click.option("--last", metavar="N", default=100, type=click.IntRange(min=0), help="How many past events; 100.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: one object a line.")
@settings_option
def command(settings_file: Path, key: Key | str | None, follow: bool, last: int, output: str) -> None:
    """Show events, oldest first: of all resources and sources, or of KEY, which can be source/NAME.

    Events of deleted resources stay until they expire.
    """
    import msgspec

    from reconciler.queries.history import EventReader
    from reconciler.render.history import event_document, event_line

    settings = load(settings_file)
    reader = EventReader(settings, read_records(settings), key)
    on = coloured(sys.stdout)
    found = reader.newest(last)
    while True:
        for event in found:
            text = event_line(event, on) if output == "text" else msgspec.json.encode(event_document(event)).decode()
            click.echo(text)
        if not follow:
            return
        while not (found := reader.more()):
            time.sleep(_POLL_SECONDS)
