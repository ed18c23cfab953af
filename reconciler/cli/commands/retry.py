"""`reconciler retry`: retry failed steps at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import example_of, settings_option
from reconciler.cli.target_arguments import TargetCommand, key_argument

if TYPE_CHECKING:
    from reconciler.model.key import Key


@click.command(cls=TargetCommand, epilog=example_of("retry"))
@key_argument()
@settings_option
def command(settings_file: Path, key: Key) -> None:
    """Retry the failed steps of KEY at once, even after the last attempt."""
    run_operation(settings_file, lambda operations: operations.retry(key))
