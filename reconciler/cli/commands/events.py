"""`reconciler events`: show what happened."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load, parse_target, read_records, settings_option
from reconciler.cli.output.printing import coloured
from reconciler.render.layout import paint

if TYPE_CHECKING:
    from reconciler.model.key import Key
    from reconciler.records.store import Records
    from reconciler.records.tables.events import Event

_POLL_SECONDS = 0.2


@click.command(epilog="Example: reconciler events workload/shop/api --follow")
@click.argument("key", required=False, callback=parse_target)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now.")
@click.option("--last", metavar="N", default=100, type=click.IntRange(min=0), help="How many to begin with; 100.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: one object a line.")
@settings_option
def command(settings_file: Path, key: Key | str | None, follow: bool, last: int, output: str) -> None:
    """Show events, oldest first: of all resources and sources, or of KEY, which can be source/NAME.

    Events of deleted resources stay until they expire.
    """
    from reconciler.queries.existence import check_target

    settings = load(settings_file)
    records = read_records(settings)
    if key is not None:
        check_target(settings, records, key)
    on = coloured(sys.stdout)
    for event in _stream(records, key, last, follow):
        click.echo(as_json(event) if output == "json" else as_line(event, on))


def as_line(event: Event, on: bool) -> str:
    """``event`` as time, type, reason, key with its location, and message; coloured where ``on``."""
    from reconciler.times import iso

    kind = paint(f"{event.type:<7}", "yellow" if event.type == "Warning" else "green", on)
    place = f"{event.key or '-'}{'@' if event.location else ''}{event.location}"
    return f"{paint(iso(event.at), 'grey', on)} {kind} {event.reason:<16} {place}: {event.message}"


def as_json(event: Event) -> str:
    """``event`` as one line of JSON; ``time`` is UTC, ``run`` the number of the run."""
    import msgspec

    from reconciler.times import iso

    fields = msgspec.structs.asdict(event)
    return msgspec.json.encode({"time": iso(fields.pop("at")), **fields}).decode()


def _stream(records: Records, key: Key | str | None, last: int, follow: bool) -> Iterator[Event]:
    """The ``last`` events, then with ``follow`` each new one."""
    version = records.data_version()
    latest = records.events.list(limit=1)
    found = records.events.list(key, limit=last)
    newest = max((event.id for event in (*latest, *found)), default=0)
    yield from found
    while follow:
        while (now := records.data_version()) == version:
            time.sleep(_POLL_SECONDS)
        version = now
        while found := records.events.list(key, after_id=newest):
            newest = found[-1].id
            yield from found
