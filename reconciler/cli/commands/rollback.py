"""`reconciler rollback`: hold a source at an older revision."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import settings_option


@click.command(epilog="Example: reconciler rollback main HEAD~1 --reason incident-12")
@click.argument("source")
@click.argument("revision", metavar="REV")
@click.option("--reason", default="", metavar="TEXT", help="Why; others will read it.")
@settings_option
def command(settings_file: Path, source: str, revision: str, reason: str) -> None:
    """Take a source back to the revision REV and hold it there, whatever is pushed, until `reconciler resume SOURCE`.

    Drift is healed towards REV meanwhile. Deletes beyond the budget wait for approval as in any other run.
    """
    run_operation(settings_file, lambda operations: operations.rollback(source, revision, reason))
