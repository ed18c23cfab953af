"""`reconciler rollback`: roll a source back to an older revision."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import settings_option
from reconciler.errors import UsageError


@click.command(epilog="Example: reconciler rollback main HEAD~1 --reason incident-12")
@click.argument("source")
@click.argument("revision", metavar="[REV]", required=False, default="")
@click.option("--previous", is_flag=True, help="Roll back to the last good revision before the applied one.")
@click.option("--force", is_flag=True, help="Accept a revision that the source never followed.")
@click.option("--reason", default="", metavar="TEXT", help="The reason, which others will read.")
@settings_option
def command(settings_file: Path, source: str, revision: str, previous: bool, force: bool, reason: str) -> None:
    """Roll a source back to the revision REV, and ignore pushes until `reconciler resume SOURCE`.

    REV is a commit, a tag, or an expression such as main~2. HEAD is the applied commit, so HEAD~1 is its parent,
    whichever commit is checked out. REV must be an ancestor of the commits that the source followed.

    Meanwhile drift is healed towards REV. Deletes beyond the budget wait for approval as in any other run.
    """
    from reconciler.operations.commands import PREVIOUS

    if previous == bool(revision):
        raise UsageError("name either a revision REV or --previous")
    wanted = PREVIOUS if previous else revision
    run_operation(settings_file, lambda operations: operations.rollback(source, wanted, reason, force=force))
