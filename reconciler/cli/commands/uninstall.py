"""`reconciler uninstall`: remove the systemd service, and keep its data."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.service.machine import read_root
from reconciler.cli.service.uninstall import uninstall_service
from reconciler.errors import UsageError


@click.command(epilog="Example: reconciler uninstall --dry-run")
@click.option("--purge", is_flag=True, help="Also delete settings, records and logs, and the user.")
@click.option("--volumes", is_flag=True, help="With --purge: also delete the volumes.")
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
@click.option("--root", metavar="DIR", type=click.Path(path_type=Path), help="Of the machine with its files below DIR.")
def command(purge: bool, volumes: bool, dry_run: bool, root: Path | None) -> None:
    """End the service and its workloads, and remove what `reconciler install` made.

    What is removed and what stays is printed. Settings, records and the user stay without --purge, and volumes always
    do without --volumes. Repositories are never touched.
    """
    if volumes and not purge:
        raise UsageError("--volumes is for --purge, which deletes what volumes belong to")
    uninstall_service(read_root(root), purge=purge, volumes=volumes, dry_run=dry_run)
