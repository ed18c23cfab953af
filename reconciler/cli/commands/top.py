"""`reconciler top`: show the replicas on this host, and what they use."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import closed, load, records_or_none, settings_option
from reconciler.cli.output.live_display import Live
from reconciler.cli.output.printing import coloured
from reconciler.render.layout import strip_control

if TYPE_CHECKING:
    from reconciler.engines.host.snapshot import HostSnapshot, ReplicaRow
    from reconciler.settings import Settings

_HEADING = (
    *("WORKLOAD", "LOCATION", "REPLICA", "VERSION", "STATE"),
    *("RESTARTS", "CPU", "MEMORY", "AGE", "PORTS", "MESSAGE"),
)
_COLOURS = {"Ready": "green", "Loading": "yellow", "Ending": "yellow", "Not ready": "red", "Backoff": "red"}
NO_REPLICAS = "no replicas run here"
_ONCE = 0.5
"""Seconds over which CPU is measured where the table is printed once."""


@click.command(epilog="Example: reconciler top --gvc shop")
@click.option("--gvc", metavar="G", help="Only the workloads of this GVC.")
@click.option("--once", is_flag=True, help="Print the table once; so too where there is no terminal.")
@click.option("--interval", metavar="S", default=2.0, type=click.FloatRange(0.1), help="Seconds between looks; 2.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: once, for programs.")
@settings_option
def command(settings_file: Path, gvc: str | None, once: bool, interval: float, output: str) -> None:
    """Show the replicas on this host: their state, their restarts, and what they use.

    CPU is in thousandths of a core since the last refresh; memory is resident memory. A port shows as 20001->8080: at
    127.0.0.1:20001 the replica serves the port that its manifest declares as 8080. Needs no daemon.
    """
    settings = load(settings_file)
    places = [name for name, bound in settings.locations.items() if bound.engine == "host"]
    if gvc is not None:
        _check_gvc(settings, gvc)
    if not places:
        click.echo("the settings bind no location to the engine host", err=True)
    try:
        if output == "json":
            _json(_once(settings, gvc))
        elif once or not sys.stdout.isatty():
            _print(_once(settings, gvc))
        elif places:
            _follow(settings, gvc, interval)
    except PermissionError as error:
        raise closed(settings, error) from None


def _check_gvc(settings: Settings, gvc: str) -> None:
    """Raise NotFoundError for a GVC without replicas here and without records."""
    from reconciler.queries.existence import check_gvc

    try:
        if not _rows(_read(settings), {}, gvc):
            with closing(records_or_none(settings)) as records:
                check_gvc(records, gvc)
    except PermissionError as error:
        raise closed(settings, error) from None


def _once(settings: Settings, gvc: str | None) -> list[ReplicaRow]:
    before = _read(settings)
    if any(each.replicas for each in before.values()):
        time.sleep(_ONCE)
    return _rows(_read(settings), before, gvc)


def _print(rows: Sequence[ReplicaRow]) -> None:
    if rows:
        click.echo("\n".join(_table(rows, coloured(sys.stdout))))
    else:
        click.echo(NO_REPLICAS, err=True)


def _follow(settings: Settings, gvc: str | None, interval: float) -> None:
    """Refresh the table until Ctrl-C."""
    before: dict[str, HostSnapshot] = {}
    on = coloured(sys.stdout)
    with Live(sys.stdout) as live:
        while True:
            now = _read(settings)
            rows = _rows(now, before, gvc)
            live.draw(_table(rows, on) if rows else [NO_REPLICAS])
            before = now
            time.sleep(interval)


def _read(settings: Settings) -> dict[str, HostSnapshot]:
    from reconciler.engines.host.snapshot import take_snapshot

    hosted = {name: bound.runtime for name, bound in settings.locations.items() if bound.engine == "host"}
    return {name: take_snapshot(settings.state / "host" / name, name, runtime) for name, runtime in hosted.items()}


def _rows(now: Mapping[str, HostSnapshot], before: Mapping[str, HostSnapshot], gvc: str | None) -> list[ReplicaRow]:
    from reconciler.engines.host.snapshot import rows

    found = (row for name, reading in now.items() for row in rows(name, reading, before.get(name)))
    mine = (row for row in found if gvc in (None, row.replica.key.gvc))
    return sorted(mine, key=lambda row: (row.replica.key, row.location, row.replica.name))


def _table(rows: Sequence[ReplicaRow], on: bool) -> list[str]:
    from reconciler.render.layout import columns

    cells = [_HEADING, *map(_cells, rows)]
    return columns(cells, colours=_COLOURS if on else None).splitlines()


def _cells(row: ReplicaRow) -> tuple[str, ...]:
    from reconciler.times import age

    replica = row.replica
    ports = " ".join(f"{assigned}->{declared}" for declared, assigned in sorted(replica.ports.items()))
    return (
        f"{replica.key.gvc}/{replica.key.name}",
        row.location,
        replica.name,
        str(replica.version),
        str(row.state),
        str(row.restarts),
        "-" if row.cpu is None else f"{row.cpu}m",
        "-" if row.memory is None else f"{row.memory / 2**20:.1f}Mi",
        age(row.age),
        ports or "-",
        strip_control(row.fault),
    )


def _json(rows: Sequence[ReplicaRow]) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode({"replicas": list(_items(rows))}), indent=2).decode())


def _items(rows: Sequence[ReplicaRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        replica = row.replica
        yield {
            "workload": str(replica.key),
            "location": row.location,
            "replica": replica.name,
            "version": replica.version,
            "state": str(row.state),
            "message": row.fault,
            "restarts": row.restarts,
            "cpuMillicores": row.cpu,
            "memoryBytes": row.memory,
            "ageSeconds": round(row.age),
            "ports": {str(declared): assigned for declared, assigned in sorted(replica.ports.items())},
        }
