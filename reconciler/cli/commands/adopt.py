"""`reconciler adopt`: manage an orphan again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import settings_option
from reconciler.cli.target_arguments import TargetCommand, key_argument
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.model.key import Key


@click.command(cls=TargetCommand, epilog="Example: reconciler adopt volumeset/shop/data")
@key_argument(required=False)
@click.option(
    "--all-of", "gone", default="", metavar="NAME", help="All resources of this removed source, instead of KEY."
)
@click.option(
    "--source",
    default="",
    metavar="NAME",
    help="The new source, if the settings no longer name its own.",
)
@settings_option
def command(settings_file: Path, key: Key | None, gone: str, source: str) -> None:
    """Manage an orphan like any other resource again: it is deleted if its source does not have it in Git.

    Resources of a source that was removed from the settings stay as they are until another source adopts them with
    --source: KEY, or all of them with --all-of.
    """
    if (key is None) == (not gone):
        raise UsageError("name either the KEY to adopt, or with --all-of a removed source")
    run_operation(
        settings_file,
        lambda operations: operations.adopt_all(gone, source) if key is None else operations.adopt(key, source),
        "adopt",
    )
