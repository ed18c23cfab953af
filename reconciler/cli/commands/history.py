"""`reconciler history`: show past runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from reconciler.cli.options import load, read_records, settings_option
from reconciler.cli.output.printing import coloured


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
    from reconciler.queries.history import list_runs
    from reconciler.render.history import run_document, run_line

    settings = load(settings_file)
    runs = list_runs(settings, read_records(settings), source, last)
    if output == "json":
        echo_json({"items": [run_document(run) for run in runs]})
        return
    on = coloured(sys.stdout)
    for run in runs:
        click.echo(run_line(run, on))
