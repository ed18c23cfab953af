"""`reconciler hold`: make the requests of a workload wait."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import run_operation
from reconciler.cli.options import parse_key, settings_option

if TYPE_CHECKING:
    from reconciler.model.key import Key


def parse_length(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Callback of an option that is a duration: returns seconds."""
    from reconciler.settings import parse_duration

    try:
        return None if value is None else parse_duration(value)
    except ValueError:
        raise click.BadParameter("write how long, for example 60s or 5m", ctx, param) from None


@click.command(epilog="Example: reconciler hold workload/shop/api --for 60s --reason 'database migration'")
@click.argument("key", callback=parse_key)
@click.option("--for", "seconds", callback=parse_length, metavar="TIME", help="How long, at most 1h: 60s, 5m.")
@click.option("--reason", default="", metavar="TEXT", help="The reason, which others will read.")
@click.option("--release", is_flag=True, help="End the hold now.")
@settings_option
def command(settings_file: Path, key: Key, seconds: float | None, reason: str, release: bool) -> None:
    """Make new requests to the workload KEY on this host wait, and release them after TIME, or with --release.

    Requests that replicas work on already are answered. At most `host.hold.requests` requests wait, and more are
    refused. Status, `reconciler describe` and `reconciler events` show who holds them and why.
    """
    if release == (seconds is not None):
        raise click.UsageError("write either --for TIME or --release")
    if seconds is None:
        run_operation(settings_file, lambda operations: operations.release(key), "refresh")
    else:
        run_operation(settings_file, lambda operations: operations.hold(key, seconds, reason), "refresh")
