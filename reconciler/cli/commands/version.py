"""`reconciler version`: show the versions of this command, the daemon and the engines."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler import __version__
from reconciler.cli.options import load_or_none, settings_option
from reconciler.cli.output.forms import Output, output_option, print_document

if TYPE_CHECKING:
    from reconciler.settings import Settings


@click.command(epilog="Example: reconciler version -o json")
@output_option(has_names=False)
@settings_option
def command(settings_file: Path, output: Output) -> None:
    """Show the version of this command, that of the daemon where one runs, and the engines there are.

    Works without settings.
    """
    from reconciler.engines.plugin import list_engines

    versions: dict[str, Any] = {
        "client": __version__,
        "daemon": _read_daemon_version(load_or_none(settings_file)),
        "engines": sorted(list_engines()),
        "python": platform.python_version(),
    }
    if not output.is_text:
        print_document(output, versions)
        return
    for name, value in versions.items():
        click.echo(f"{name:<8} {', '.join(value) if isinstance(value, list) else value or 'not running'}")


def _read_daemon_version(settings: Settings | None) -> str | None:
    """The version of the daemon on this host, None where none runs or this user may not look."""
    from reconciler.daemon.lock import find_lock_holder

    if settings is None:
        return None
    try:
        holder = find_lock_holder(settings.state)
    except OSError:
        return None
    return None if holder is None else holder.version or "unknown"
