"""`reconciler top`: show the replicas on this host, and what they use."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import Duration, closed, load, records_or_none, settings_option
from reconciler.cli.output.printing import coloured
from reconciler.terminal.live_display import Live

if TYPE_CHECKING:
    from reconciler.engines.host.reading.snapshot import ReplicaRow
    from reconciler.queries.top import ReplicaReader
    from reconciler.settings import Settings

NO_REPLICAS = "no replicas run here"
_ONCE = 0.5
"""Seconds over which CPU is measured where the table is printed once."""


@click.command(epilog="Example: reconciler top --gvc shop")
@click.option("--gvc", metavar="G", help="Only the workloads of this GVC.")
@click.option("--once", is_flag=True, help="Print the table once, as without a terminal.")
@click.option("--interval", metavar="TIME", default=2.0, type=Duration(least=0.1), help="Time between refreshes; 2s.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: once, for programs.")
@settings_option
def command(settings_file: Path, gvc: str | None, once: bool, interval: float, output: str) -> None:
    """Show the replicas on this host: their state, their restarts, and what they use.

    CPU is in thousandths of a core since the last refresh; memory is resident memory. A port shows as 20001->8080: at
    127.0.0.1:20001 the replica serves the port that its manifest declares as 8080. Needs no daemon.
    """
    from reconciler.cli.output.printing import echo_json
    from reconciler.queries.top import ReplicaReader
    from reconciler.render.replicas import replica_document

    settings = load(settings_file)
    reader = ReplicaReader(settings, gvc)
    try:
        if gvc is not None:
            _check_gvc(settings, gvc)
        if not reader.has_locations:
            click.echo("the settings bind no location to the engine host", err=True)
        if output == "json":
            echo_json(replica_document(_measure(reader)))
        elif once or not sys.stdout.isatty():
            _print(_measure(reader))
        elif reader.has_locations:
            _follow(reader, interval)
    except PermissionError as error:
        raise closed(settings, error) from None


def _check_gvc(settings: Settings, gvc: str) -> None:
    """Raise NotFoundError for a GVC without replicas here and without records."""
    from reconciler.queries.existence import check_gvc
    from reconciler.queries.top import ReplicaReader

    if not ReplicaReader(settings, gvc).read():
        with closing(records_or_none(settings)) as records:
            check_gvc(records, gvc)


def _measure(reader: ReplicaReader) -> list[ReplicaRow]:
    """The replicas with the CPU that they use for a moment."""
    if reader.read():
        time.sleep(_ONCE)
    return reader.read()


def _print(rows: Sequence[ReplicaRow]) -> None:
    from reconciler.render.replicas import replica_table

    if rows:
        click.echo("\n".join(replica_table(rows, coloured(sys.stdout))))
    else:
        click.echo(NO_REPLICAS, err=True)


def _follow(reader: ReplicaReader, interval: float) -> None:
    """Refresh the table until Ctrl-C."""
    from reconciler.render.replicas import replica_table

    on = coloured(sys.stdout)
    with Live(sys.stdout) as live:
        while True:
            rows = reader.read()
            live.draw(replica_table(rows, on) if rows else [NO_REPLICAS])
            time.sleep(interval)
