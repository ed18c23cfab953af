"""`reconciler drift`: show what was changed at its location and not in Git."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import load, parse_key, read_records, settings_option
from reconciler.cli.output.printing import coloured
from reconciler.render.layout import paint

if TYPE_CHECKING:
    from reconciler.model.key import Key
    from reconciler.planning.drift import Drift
    from reconciler.records.store import Records
    from reconciler.records.tables.drift import DriftRow
    from reconciler.settings import Settings

_COLOURS = {"missing": "red", "changed": "yellow", "unexpected": "blue"}


@click.command(epilog="Example: reconciler drift workload/shop/api")
@click.argument("key", required=False, callback=parse_key)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@settings_option
def command(settings_file: Path, key: Key | None, output: str) -> None:
    """Show the changes that were made at a location and not in Git: all of them, or those of KEY.

    While a daemon runs, its last check is shown; else the locations are checked now. The printed rules permit the same
    differences from now on, once they are added to the settings.
    """
    from reconciler.cli.output.printing import echo_json
    from reconciler.queries.existence import check_key

    settings = load(settings_file)
    records = read_records(settings)
    if key is not None:
        check_key(records, key)
    at, rows = _found(settings, records)
    rows = [row for row in rows if key is None or row.key == str(key)]
    if output == "json":
        echo_json(_document(at, rows))
        return
    for line in _lines(at, rows, coloured(sys.stdout)):
        click.echo(line)


def _found(settings: Settings, records: Records) -> tuple[float | None, list[DriftRow]]:
    """The time of the last check and the drift found. Raises RefusedError where a location does not answer."""
    from reconciler.daemon.lock import holder

    if holder(settings.state) is not None:
        return records.drifts.checked(), records.drifts.all()
    return _now(settings, records)


def _now(settings: Settings, records: Records) -> tuple[float | None, list[DriftRow]]:
    import asyncio

    from reconciler.clock import SystemClock
    from reconciler.drift.monitor import rows_of, scan
    from reconciler.engines.registry import engines_for
    from reconciler.errors import RefusedError
    from reconciler.secrets.store import SecretStore

    clock = SystemClock()
    found = asyncio.run(
        scan(settings, records, engines_for(settings, records, clock, SecretStore(records, settings).read))
    )
    if found.unreachable:
        failures = "; ".join(f"{place}: {message}" for place, message in sorted(found.unreachable.items()))
        raise RefusedError(f"not every location can be looked at: {failures}")
    return (clock.now() if found.seen else None), rows_of(records, found, clock.now())


def _lines(at: float | None, rows: list[DriftRow], on: bool) -> Iterator[str]:
    from reconciler.planning.drift import snippet
    from reconciler.times import iso

    drifts = [_drift(row) for row in rows]
    for row, drift in zip(rows, drifts, strict=True):
        yield from _one(row, drift, on)
    when = f" at {iso(at)}" if at is not None else ""
    if not rows:
        yield f"Nothing differed{when}." if at is not None else "Nothing here can differ, or nobody has looked yet."
        return
    yield f"\n{len(rows)} {'differ' if len(rows) > 1 else 'differs'}{when}. To let that be, put into the settings:\n"
    yield from snippet(drifts)


def _one(row: DriftRow, drift: Drift, on: bool) -> Iterator[str]:
    from reconciler.render.plan.summary import DIFFERS, differences, shown_pair
    from reconciler.times import iso

    place = f" at {drift.location}" if drift.location else ""
    what = paint(drift.what, _COLOURS[drift.what], on)
    aside = ", left alone: healed again and again" if row.in_conflict else "" if row.source else ", without an owner"
    yield f"{paint(row.key, 'bold', on)}{place}: {what} since {iso(row.since)}{aside}"
    for change in drift.changes:
        pair = shown_pair(change)
        if pair is None:
            yield f"    {change.path}  (-: is there, +: was applied)"
            yield from (f"      {sign} {line}".rstrip() for sign, line in differences(change.before, change.after))
        else:
            applied = "applied is another" if pair[1] == DIFFERS else f"applied is {pair[1]}"
            yield f"    {change.path}  is {pair[0]}, {applied}"


def _document(at: float | None, rows: list[DriftRow]) -> dict[str, Any]:
    """The drift as JSON; times are UTC, ``checked`` null before the first check."""
    from reconciler.times import iso

    return {"checked": None if at is None else iso(at), "items": [_item(row) for row in rows]}


def _drift(row: DriftRow) -> Drift:
    from reconciler.planning.drift import decode
    from reconciler.records.sql import stored_row

    with stored_row("drifts", row.key):
        return decode(row.packed)


def _item(row: DriftRow) -> dict[str, Any]:
    from reconciler.times import iso

    drift = _drift(row)
    return {
        "key": row.key,
        "location": row.location or None,
        "source": row.source or None,
        "what": str(drift.what),
        "since": iso(row.since),
        "in_conflict": row.in_conflict,
        "changes": [{"path": each.path, "there": each.before, "applied": each.after} for each in drift.changes],
    }
