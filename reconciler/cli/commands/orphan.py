"""`reconciler orphan`: keep a resource that is removed from Git."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import settings_option
from reconciler.cli.target_arguments import TargetCommand, key_argument

if TYPE_CHECKING:
    from reconciler.model.key import Key


@click.command(cls=TargetCommand, epilog="Example: reconciler orphan volumeset/shop/data")
@key_argument()
@settings_option
def command(settings_file: Path, key: Key) -> None:
    """Keep KEY where it is when it is removed from Git, until `reconciler adopt KEY`."""
    run_operation(settings_file, lambda operations: operations.orphan(key))
