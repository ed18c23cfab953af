"""`reconciler backup`: a copy of the records while the daemon works."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.options import load, read_records, settings_option


@click.command(epilog="Example: reconciler backup /var/backups/records.sqlite")
@click.argument("file", type=click.Path(path_type=Path))
@settings_option
def command(settings_file: Path, file: Path) -> None:
    """Copy the records to FILE, as they are at one moment, while the daemon goes on. An older FILE is replaced.

    The copy holds the data of secrets as plain text; only its owner can read it (mode 0600).
    """
    from reconciler.cli.operator import megabytes
    from reconciler.errors import UsageError
    from reconciler.records.backup import summarize

    settings = load(settings_file)
    if file.is_dir():
        raise UsageError(f"{file} is a directory; name a file in it")
    if file.absolute().parent.resolve() == settings.state.resolve():
        raise UsageError(f"{file} is in the state directory, which a backup is to replace one day; name another place")
    records = read_records(settings)
    try:
        records.backup(file)
    finally:
        records.close()
    made = summarize(file)
    click.echo(f"{file}: {made.resources} resources, {megabytes(made.size)}; it holds secrets in plain text")
