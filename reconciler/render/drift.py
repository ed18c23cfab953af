"""Drift as lines of text, with the rules that permit it, and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reconciler.planning.drift import Drift, format_ignore_settings, parse_drift
from reconciler.records.sql import stored_row
from reconciler.records.tables.drift import DriftRow
from reconciler.render.layout import paint_text
from reconciler.render.plan.summary import DIFFERS, diff_lines, shown_pair
from reconciler.times import format_iso_time

_COLOURS = {"missing": "red", "changed": "yellow", "unexpected": "blue"}


def drift_lines(checked: float | None, rows: Sequence[DriftRow], colour: bool) -> Iterator[str]:
    """Each difference with its fields, and the settings that permit them.

    ``checked`` is the time of the check, in seconds since the epoch; None before the first check.
    """
    drifts = [_decode_drift_row(row) for row in rows]
    for row, drift in zip(rows, drifts, strict=True):
        yield from _format_drift_lines(row, drift, colour)
    when = f" at {format_iso_time(checked)}" if checked is not None else ""
    if not rows:
        nothing = "Nothing here can differ, or nothing was checked yet."
        yield nothing if checked is None else f"Nothing differed{when}."
        return
    yield f"\n{len(rows)} {'differ' if len(rows) > 1 else 'differs'}{when}. To permit this, add to the settings:\n"
    yield from format_ignore_settings(drifts)


def drift_document(checked: float | None, rows: Iterable[DriftRow]) -> dict[str, Any]:
    """The drift as JSON values; times are UTC, ``checked`` null before the first check."""
    return {
        "checked": None if checked is None else format_iso_time(checked),
        "items": [_build_drift_item(row) for row in rows],
    }


def _format_drift_lines(row: DriftRow, drift: Drift, colour: bool) -> Iterator[str]:
    where = f" at {drift.location}" if drift.location else ""
    what = paint_text(drift.what, _COLOURS[drift.what], colour)
    aside = "" if row.source else ", without an owner"
    aside = ", no longer healed: it was healed too often" if row.in_conflict else aside
    yield f"{paint_text(row.key, 'bold', colour)}{where}: {what} since {format_iso_time(row.since)}{aside}"
    for change in drift.changes:
        pair = shown_pair(change)
        if pair is None:
            yield f"    {change.path}  (-: found, +: applied)"
            yield from (f"      {sign} {line}".rstrip() for sign, line in diff_lines(change.before, change.after))
        else:
            applied = "another value" if pair[1] == DIFFERS else pair[1]
            yield f"    {change.path}  is {pair[0]}, applied: {applied}"


def _build_drift_item(row: DriftRow) -> dict[str, Any]:
    drift = _decode_drift_row(row)
    return {
        "key": row.key,
        "location": row.location or None,
        "source": row.source or None,
        "what": str(drift.what),
        "since": format_iso_time(row.since),
        "in_conflict": row.in_conflict,
        "changes": [{"path": change.path, "there": change.before, "applied": change.after} for change in drift.changes],
    }


def _decode_drift_row(row: DriftRow) -> Drift:
    with stored_row("drifts", row.key):
        return parse_drift(row.packed)
