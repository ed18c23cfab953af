"""`reconciler restore`: replace the records by a backup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from reconciler.cli.options import read_settings, settings_option
from reconciler.errors import RecordsError, RefusedError


@click.command(epilog="Example: reconciler restore /var/backups/records.sqlite --force")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace existing records; they are moved aside.")
@settings_option
def command(settings_file: Path, file: Path, force: bool) -> None:
    """Replace the records by the backup FILE. Stop the daemon first.

    The whole backup is checked; one of an older reconciler is migrated. Its approvals and requests are dropped, and
    steps in flight are planned again. The next run compares the restored records with Git. Credentials and the audit
    log of the HTTP API come back if the state directory has none.
    """
    from reconciler.access.backup import Restored, check_backup, restore_from_backup
    from reconciler.cli.operator import format_megabytes
    from reconciler.daemon.lock import StateLock
    from reconciler.records.backup import restore_backup, summarize_records
    from reconciler.records.store import FILE
    from reconciler.times import format_iso_time

    settings = read_settings(settings_file)
    path = settings.state / FILE
    with _make_readable_copy(file, settings.state) as backup, StateLock(settings.state):
        check_backup(backup)
        aside = restore_backup(backup, path, force=force)
        access = restore_from_backup(backup, settings.state)
    summary = summarize_records(path)
    last = f", last run {format_iso_time(summary.last_run)}" if summary.last_run is not None else ""
    click.echo(f"{path}: {summary.resources} resources, {format_megabytes(summary.size)}{last}")
    if aside is not None:
        click.echo(f"the former records are {aside}; they contain secrets as plain text: delete them when all is well")
    if access is Restored.RESTORED:
        click.echo(
            "the credentials of the API are back, also those that were revoked since the backup: revoke them again"
        )
    elif access is Restored.UNCHANGED:
        click.echo("the credentials and the audit log of the API stay as they are in the state directory")
    click.echo("see what a run would do: reconciler plan")


@contextmanager
def _make_readable_copy(file: Path, state: Path) -> Iterator[Path]:
    """Become the owner of ``state``; yield ``file``, or a copy in ``state`` made by root that the owner can read."""
    from reconciler.cli.privileges import as_owner, become_owner, copy_to

    with as_owner(state) as other:
        pass
    if not other or not file.is_file():
        become_owner(state)
        yield file
        return
    copy, opened = state / "restore.copy", []
    for ending in ("", "-wal"):
        with suppress(FileNotFoundError):
            opened.append((ending, os.open(f"{file}{ending}", os.O_RDONLY | os.O_CLOEXEC)))
    become_owner(state)
    try:
        for ending, descriptor in opened:
            copy_to(copy.with_name(f"{copy.name}{ending}"), descriptor)
        yield copy
    except (RecordsError, RefusedError) as error:
        raise type(error)(str(error).replace(str(copy), str(file))) from None
    finally:
        for ending in ("", "-wal", "-shm"):
            copy.with_name(f"{copy.name}{ending}").unlink(missing_ok=True)
