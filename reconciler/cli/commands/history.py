"""`reconciler history`: show the runs that there were."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import load, read_records, settings_option
from reconciler.cli.output.printing import coloured
from reconciler.render.layout import paint

if TYPE_CHECKING:
    from reconciler.records.tables.runs import Run

_COLOURS = {"applied": "green", "failed": "red", "refused": "red", "unreadable": "red", "waiting": "yellow"}


@click.command(epilog="Example: reconciler history main --last 20")
@click.argument("source", required=False, default="")
@click.option("--last", metavar="N", default=30, type=click.IntRange(min=1), help="How many; 30.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@settings_option
def command(settings_file: Path, source: str, last: int, output: str) -> None:
    """Show the runs that changed something, and those that failed, newest first: of SOURCE, or of all.

    A revision that is refused several times is listed once.
    """
    from reconciler.cli.output.printing import echo_json
    from reconciler.queries.existence import find_source

    settings = load(settings_file)
    runs = read_records(settings).runs.list(last, source)
    if source and not runs:  # a source removed from the settings still has its history
        find_source(settings, source)
    if output == "json":
        echo_json({"items": [_document(run) for run in runs]})
        return
    on = coloured(sys.stdout)
    for run in runs:
        click.echo(as_line(run, on))


def as_line(run: Run, on: bool) -> str:
    """``run`` as time, source and commit, outcome, seconds, changes or reason, and the author of the commit."""
    from reconciler.times import iso

    outcome = run.outcome or "unfinished"
    counts = ", ".join(f"{count} {word}" for word, count in run.counts.items()) or run.message or "-"
    took = f"{run.finished - run.started:.1f} s" if run.finished is not None else "-"
    commit = run.revision.rpartition(":")[2][:12]
    made = f"{run.author}: {run.subject}" if run.author else run.subject
    return "  ".join(
        (
            paint(iso(run.started), "grey", on),
            f"{run.source} {commit}",
            paint(f"{outcome:<10}", _COLOURS.get(outcome, ""), on) if outcome in _COLOURS else f"{outcome:<10}",
            f"{took:>7}",
            counts,
            made,
            paint(run.digest[:12], "grey", on),
        )
    ).rstrip()


def _document(run: Run) -> dict[str, Any]:
    """A run as JSON; times are UTC, ``seconds`` null while it runs."""
    from reconciler.times import iso

    return {
        "run": run.id,
        "source": run.source,
        "revision": run.revision,
        "author": run.author,
        "subject": run.subject,
        "reason": run.reason,
        "started": iso(run.started),
        "seconds": None if run.finished is None else round(run.finished - run.started, 3),
        "outcome": run.outcome or None,
        "message": run.message or None,
        "counts": run.counts,
        "digest": run.digest or None,
    }
