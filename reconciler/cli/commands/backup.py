"""`reconciler backup`: back up the records while the daemon runs."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import click

from reconciler.cli.options import read_records, read_settings, settings_option
from reconciler.cli.privileges import as_owner, copy_to


@click.command(epilog="Example: reconciler backup /var/backups/records.sqlite")
@click.argument("file", type=click.Path(path_type=Path))
@settings_option
def command(settings_file: Path, file: Path) -> None:
    """Copy a consistent snapshot of the records to FILE while the daemon runs. An older FILE is replaced.

    Keys of service accounts, users, and the audit log of the HTTP API are in it too.

    The copy contains the data of secrets as plain text; only its owner can read it (mode 0600).
    """
    from reconciler.access.backup import add_to_backup
    from reconciler.cli.operator import format_megabytes
    from reconciler.errors import UsageError
    from reconciler.records.backup import summarize_records
    from reconciler.records.connection import to_disk

    settings = read_settings(settings_file)
    if file.is_dir():
        raise UsageError(f"{file} is a directory; name a file in it")
    if file.absolute().parent.resolve() == settings.state.resolve():
        raise UsageError(f"{file} is in the state directory, which a restore replaces; name another place")
    with as_owner(settings.state) as other:
        copy = settings.state / "backup.copy" if other else file
        fresh = copy.with_name(f"{copy.name}.new")
        try:
            with closing(read_records(settings)) as records:
                records.backup(fresh)
            with_access = add_to_backup(settings.state, fresh)
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
    content = f"secrets as plain text{', and the credentials and the audit log of the API' if with_access else ''}"
    click.echo(f"{file}: {summary.resources} resources, {format_megabytes(summary.size)}; it contains {content}")


def _write_copy(file: Path, written: int) -> None:
    """Write the copy, which the owner of the state directory made, to root's ``file``."""
    from reconciler.errors import RecordsError

    try:
        copy_to(file, written)
    except OSError as error:
        raise RecordsError(f"the backup {file} cannot be written: {error.strerror}") from error
    finally:
        os.close(written)
