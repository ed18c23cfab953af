"""`reconciler rollback`: roll a source back to an older revision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import settings_option
from reconciler.cli.output.printing import echo_text
from reconciler.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from reconciler.operations.commands import OperatorCommands
    from reconciler.operations.data_rollback import RollbackTarget


@click.command(epilog="Example: reconciler rollback main HEAD~1 --reason incident-12")
@click.argument("source")
@click.argument("revision", metavar="[REV]", required=False, default="")
@click.option("--previous", is_flag=True, help="Roll back to the last good revision before the applied one.")
@click.option("--force", is_flag=True, help="Accept a revision that the source never followed.")
@click.option("--with-data", is_flag=True, help="Restore volumes from the snapshots before newer versions.")
@click.option("--approve", default="", metavar="DIGEST", help="Approve the loss of data that --with-data shows.")
@click.option("--reason", default="", metavar="TEXT", help="The reason, which others will read.")
@settings_option
def command(settings_file: Path, source: str, revision: str, reason: str, approve: str, **how: bool) -> None:
    """Roll a source back to the revision REV, and ignore pushes until `reconciler resume SOURCE`.

    REV is a commit, a tag, or an expression such as main~2. HEAD is the applied commit, so HEAD~1 is its parent,
    whichever commit is checked out. REV must be an ancestor of the commits that the source followed.

    Meanwhile drift is healed towards REV. Deletes beyond the budget wait for approval as in any other run.
    """
    from reconciler.operations.commands import PREVIOUS

    if how["previous"] == bool(revision):
        raise UsageError("name either a revision REV or --previous")
    selector = PREVIOUS if how["previous"] else revision

    def roll_back(operations: OperatorCommands) -> str:
        target = operations.rollback_target(source, selector, force=how["force"])
        if how["with_data"]:
            _check_approved(target, approve)
        return operations.rollback(target, reason, with_data=how["with_data"])

    run_operation(settings_file, roll_back)


def _check_approved(target: RollbackTarget, approved: str) -> None:
    """Show what would be lost. Raises RefusedError unless ``approved`` begins the digest of that, or is it."""
    from reconciler.clock import SystemClock
    from reconciler.operations.approval import MIN_PREFIX
    from reconciler.operations.data_rollback import describe_loss, digest_of

    if not target.restores:
        short = target.revision.commit[:12]
        raise RefusedError(
            f"no volume of {target.source} has a snapshot from before a version newer than that of {short}; leave "
            "--with-data out, or restore one by hand: reconciler snapshots"
        )
    now = SystemClock().now()
    for restore in target.restores:
        echo_text(describe_loss(restore, now), err=True)
    digest = digest_of(target)
    if approved and len(approved) < MIN_PREFIX:
        raise RefusedError(f"{approved!r} is too short; write the first {MIN_PREFIX} characters of the digest, or more")
    if not approved or not digest.startswith(approved):
        other = f"; {approved} is the digest of something else" if approved else ""
        raise RefusedError(
            f"what was written to these volumes since is lost{other}; to approve it, add --approve {digest[:12]}"
        )
