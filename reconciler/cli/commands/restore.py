"""`reconciler restore`: put a backup in the place of the records."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.options import load, settings_option


@click.command(epilog="Example: reconciler restore /var/backups/records.sqlite --force")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace records that are there; they are kept beside the restored ones.")
@settings_option
def command(settings_file: Path, file: Path, force: bool) -> None:
    """Make the records what the backup FILE holds. Stop the daemon first.

    The backup is checked whole; one of an older reconciler is migrated. Approvals and requests in it are dropped, and
    what was in flight is planned anew. The next run compares the restored records with Git.
    """
    from reconciler.cli.operator import megabytes
    from reconciler.clock import iso
    from reconciler.daemon.lock import StateLock
    from reconciler.records.backup import restore, summarize
    from reconciler.records.store import FILE

    settings = load(settings_file)
    path = settings.state / FILE
    with StateLock(settings.state):
        aside = restore(file, path, force=force)
    found = summarize(path)
    last = f", last run {iso(found.last_run)}" if found.last_run is not None else ""
    click.echo(f"{path}: {found.resources} resources, {megabytes(found.size)}{last}")
    if aside is not None:
        click.echo(f"the former records are {aside}; they hold secrets in plain text, delete them when all is well")
    click.echo("look at what a run would do: reconciler plan")
