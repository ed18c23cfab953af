"""`reconciler install`: install the daemon as a systemd service."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.service.install import install_service
from reconciler.cli.service.machine import read_root

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog="Example: reconciler install --settings settings.yaml --dry-run")
@click.option("--settings", "file", metavar="FILE", type=_FILE, help="Its settings; else those that are there.")
@click.option("--force", is_flag=True, help="Replace other settings that are there.")
@click.option("--dry-run", is_flag=True, help="Only print what would be made.")
@click.option("--root", metavar="DIR", type=click.Path(path_type=Path), help="Install below DIR, and start nothing.")
def command(file: Path | None, force: bool, dry_run: bool, root: Path | None) -> None:
    """Install the daemon as a service of this machine, as root: user, directories, settings, units; start it.

    Each thing that is made is printed, with the command that undoes it. What is there already stays as it is, so that
    installing again changes nothing. `reconciler settings init` makes settings.
    """
    install_service(read_root(root), file, force=force, dry_run=dry_run)
