"""`reconciler restart`: replace the replicas of a workload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import example_of, settings_option
from reconciler.cli.target_arguments import TargetCommand, key_argument

if TYPE_CHECKING:
    from reconciler.model.key import Key


@click.command(cls=TargetCommand, epilog=example_of("restart"))
@key_argument()
@settings_option
def command(settings_file: Path, key: Key) -> None:
    """Replace the replicas of the workload KEY on this host by new ones of the same version.

    The restart follows its rolloutOptions, and pauses if a new replica does not become ready.
    """
    run_operation(settings_file, lambda operations: operations.restart(key), "refresh")
