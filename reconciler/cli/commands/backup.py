"""`reconciler backup`: back up the records while the daemon runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from reconciler.cli.options import read_records, read_settings, settings_option
from reconciler.cli.privileges import as_owner, copy_to
from reconciler.errors import RecordsError
from reconciler.records.backup import RecordsSummary
from reconciler.records.backup_times import Backups
from reconciler.settings import Settings


@click.command(epilog="Example: reconciler backup /var/backups/records.sqlite")
@click.argument("file", type=click.Path(path_type=Path))
@settings_option
def command(settings_file: Path, file: Path) -> None:
    """Copy a consistent snapshot of the records to FILE while the daemon runs. An older FILE is replaced.

    Keys of service accounts, users, and the audit log of the HTTP API are in it too.

    The copy contains the data of secrets as plain text; only its owner can read it (mode 0600).

    With the setting backups.longestAge, the daemon reports a try that failed, and that the newest copy is too old.
    """
    from reconciler.cli.operator import format_megabytes
    from reconciler.errors import UsageError

    settings = read_settings(settings_file)
    if file.is_dir():
        raise UsageError(f"{file} is a directory; name a file in it")
    if file.absolute().parent.resolve() == settings.state.resolve():
        raise UsageError(f"{file} is in the state directory, which a restore replaces; name another place")
    with _record_result(settings) as at:
        summary, with_access = _write_backup(settings, file, at)
    content = f"secrets as plain text{', and the credentials and the audit log of the API' if with_access else ''}"
    click.echo(f"{file}: {summary.resources} resources, {format_megabytes(summary.size)}; it contains {content}")


def _write_backup(settings: Settings, file: Path, at: float) -> tuple[RecordsSummary, bool]:
    """Write ``file``, a backup of ``at``; returns what is in it, and whether it has credentials of the API."""
    from reconciler.access.backup import add_to_backup
    from reconciler.records.backup import mark_backup, summarize_records
    from reconciler.records.connection import to_disk

    with as_owner(settings.state) as other:
        copy = settings.state / "backup.copy" if other else file
        fresh = copy.with_name(f"{copy.name}.new")
        try:
            with closing(read_records(settings)) as records:
                records.backup(fresh)
            with_access = add_to_backup(settings.state, fresh)
            mark_backup(fresh, at)
            fresh.replace(copy)
            to_disk(copy.parent)
        finally:
            fresh.unlink(missing_ok=True)
        summary = summarize_records(copy)
        written = os.open(copy, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) if other else None
        if other:
            copy.unlink()
    if written is not None:
        _write_copy(file, written)
    return summary, with_access


@contextmanager
def _record_result(settings: Settings) -> Iterator[float]:
    """Yield the time of the backup that the block makes; record that it was made, or failed."""
    at = time.time()
    try:
        yield at
    except RecordsError as error:
        message = str(error)
        _change_marks(settings, lambda backups: backups.record_failure(at, message))
        raise
    _change_marks(settings, lambda backups: backups.record_success(at))


def _change_marks(settings: Settings, change: Callable[[Backups], None]) -> None:
    """Record the result for `status`, `doctor` and the daemon; records that cannot be written fail no backup."""
    from reconciler.clock import SystemClock
    from reconciler.daemon.wake import BACKUP, wake_daemon
    from reconciler.records.store import Records

    try:
        with (
            as_owner(settings.state),
            closing(Records.open_existing(settings.state, SystemClock(settings.state))) as records,
        ):
            change(records.backups)
    except RecordsError as error:
        if settings.backups is not None:
            click.echo(f"the result could not be recorded, so `reconciler status` does not know it: {error}", err=True)
        return
    wake_daemon(settings.state, BACKUP, "backup")


def _write_copy(file: Path, written: int) -> None:
    """Write the copy, which the owner of the state directory made, to root's ``file``."""
    try:
        copy_to(file, written)
    except OSError as error:
        raise RecordsError(f"the backup {file} cannot be written: {error.strerror}") from error
    finally:
        os.close(written)
