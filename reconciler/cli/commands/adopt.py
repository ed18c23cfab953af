"""`reconciler adopt`: take an orphan back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import parse_key, settings_option
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.model.key import Key


@click.command(epilog="Example: reconciler adopt volumeset/shop/data")
@click.argument("key", required=False, callback=parse_key)
@click.option("--all-of", "gone", default="", metavar="NAME", help="Whatever that source left behind, instead of KEY.")
@click.option(
    "--source",
    default="",
    metavar="NAME",
    help="The source that is to own it, where its own is gone from the settings.",
)
@settings_option
def command(settings_file: Path, key: Key | None, gone: str, source: str) -> None:
    """Treat an orphan like any other resource again: it is deleted if its source does not have it in Git.

    Resources of a source that was removed from the settings stay as they are, until another source takes them with
    --source: KEY, or all of them with --all-of.
    """
    if (key is None) == (not gone):
        raise UsageError("say either which KEY is to be adopted, or with --all-of what a source left behind")
    run_operation(
        settings_file,
        lambda operations: operations.adopt_all(gone, source) if key is None else operations.adopt(key, source),
        "adopt",
    )
