"""`reconciler resume`: end a suspension or a rollback."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import example_of, settings_option
from reconciler.cli.target_arguments import TargetCommand, resolve_name, target_argument


@click.command(cls=TargetCommand, epilog=example_of("resume"))
@target_argument("target", resolve_name, metavar="SOURCE|KEY")
@settings_option
def command(settings_file: Path, target: str) -> None:
    """Resume a suspended source or resource; a source that was rolled back follows its branch again."""
    run_operation(settings_file, lambda operations: operations.resume(target))
