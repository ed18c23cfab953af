"""`reconciler rollback`: roll a source or a resource back to an older revision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import example_of, settings_option, shared_option
from reconciler.cli.output.printing import echo_text
from reconciler.cli.target_arguments import TargetCommand, resolve_name, target_argument
from reconciler.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from reconciler.operations.commands import OperatorCommands
    from reconciler.operations.data_rollback import RollbackTarget

_OF_SOURCES = ("force", "with_data", "approve")


@click.command(cls=TargetCommand, epilog=example_of("rollback"))
@target_argument("target", resolve_name, metavar="TARGET")
@click.argument("revision", metavar="[REV]", required=False, default="")
@shared_option("rollback", "--previous")
@shared_option("rollback", "--dry-run")
@shared_option("rollback", "--force")
@click.option("--with-data", is_flag=True, help="Restore volumes from the snapshots before newer versions.")
@click.option("--approve", default="", metavar="DIGEST", help="Approve the loss of data that --with-data shows.")
@shared_option("rollback", "--reason", default="")
@settings_option
def command(settings_file: Path, target: str, revision: str, reason: str, **how: Any) -> int:
    """Roll a source, or the manifest of one resource, back to the revision REV.

    A source applies REV, and no pushes until `reconciler resume SOURCE`. For a resource, a new commit restores its
    manifest as REV has it, once the whole tree was checked.

    REV is a commit, a tag, or an expression such as main~2; HEAD is the applied commit. It is an ancestor of the
    commits that the source followed.
    """
    if how["previous"] == bool(revision):
        raise UsageError("name either a revision REV or --previous")
    if "/" in target:
        if any(how[name] for name in _OF_SOURCES):
            raise UsageError("--force, --with-data and --approve are about sources, and not about one resource")
        return _roll_back_resource(settings_file, target, revision, reason, is_dry=how["dry_run"])
    if how["dry_run"]:
        raise UsageError(f"--dry-run is about one resource; for a source: reconciler plan {target} --revision REV")
    return _roll_back_source(settings_file, target, revision, reason, how)


def _roll_back_source(settings_file: Path, source: str, revision: str, reason: str, how: dict[str, Any]) -> int:
    from reconciler.operations.commands import PREVIOUS

    def roll_back(operations: OperatorCommands) -> str:
        target = operations.rollback_target(source, revision or PREVIOUS, force=how["force"])
        if how["with_data"]:
            _check_approved(target, how["approve"])
        return operations.rollback(target, reason, with_data=how["with_data"])

    run_operation(settings_file, roll_back)
    return 0


def _roll_back_resource(settings_file: Path, target: str, revision: str, reason: str, *, is_dry: bool) -> int:
    """Commit the manifest of ``target`` as ``revision`` has it ("": as the version before); returns the exit code."""
    from contextlib import closing

    from reconciler.changes.restoring import choose_version, make_rollback, write_message
    from reconciler.changes.write import RevisionRefused
    from reconciler.cli.manifest_changes import ChangeParameters, open_change
    from reconciler.cli.options import load_settings_as_owner
    from reconciler.cli.output.forms import Output
    from reconciler.clock import SystemClock
    from reconciler.model.key import Key
    from reconciler.records.store import Records

    key, settings = Key.parse(target), load_settings_as_owner(settings_file)
    with closing(Records.open_existing(settings.state, SystemClock(settings.state))) as records:
        chosen = choose_version(settings, records, key, revision)
    with open_change(key, ChangeParameters(settings_file, "", review=False, dry_run=is_dry, output=Output())) as change:
        manifest = change.manifest
        rollback = make_rollback(manifest.writer, key, manifest.path, chosen)
        options = change.options._replace(message=write_message(rollback, reason))
        try:
            change.show(manifest.write(rollback.edit, options))
        except RevisionRefused as refused:
            return change.show_refusal(refused)
    return 0


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
