"""`reconciler adopt`: take an orphan back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.common import parse_key, settings_option
from reconciler.cli.saying import say

if TYPE_CHECKING:
    from reconciler.model.key import Key


@click.command(epilog="Example: reconciler adopt volumeset/shop/data")
@click.argument("key", callback=parse_key)
@click.option(
    "--source",
    default="",
    metavar="NAME",
    help="The source that is to own it, where its own is gone from the settings.",
)
@settings_option
def command(settings_file: Path, key: Key, source: str) -> None:
    """Treat an orphan like any other resource again: what its source has not in Git is deleted.

    What belonged to a source that the settings have no more goes to --source.
    """
    say(settings_file, lambda operations: operations.adopt(key, source))
