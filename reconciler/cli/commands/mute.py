"""`reconciler mute`: send nothing about something for a while."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from reconciler.cli.operator import parse_until
from reconciler.cli.options import get_operator_name, load_settings_as_owner, read_records, settings_option
from reconciler.cli.output.printing import echo_text
from reconciler.errors import UsageError


@click.command(epilog="Example: reconciler mute gvc/shop --reason migration --until 2h")
@click.argument("target", default="")
@click.option("--reason", default="", metavar="TEXT", help="The reason, which others will read.")
@click.option(
    "--until", callback=parse_until, metavar="WHEN", help="A time such as 2026-01-31T12:00Z, or how long: 2h."
)
@click.option("--end", is_flag=True, help="End the mute of TARGET.")
@settings_option
def command(settings_file: Path, target: str, reason: str, until: float | None, end: bool) -> None:
    """Send no messages about TARGET until a time: all, rule/NAME, source/NAME, gvc/NAME, or the key of a resource.

    What is still wrong is sent after it. Without TARGET, the mutes are listed. `reconciler notify list` shows what was
    not sent because of them.
    """
    from reconciler.clock import SystemClock
    from reconciler.operations.commands import open_existing
    from reconciler.operations.notifications import mute_target, unmute_target
    from reconciler.records.notifications.troubles import Mute
    from reconciler.times import format_iso_time

    settings, clock = load_settings_as_owner(settings_file), SystemClock()
    if not target:
        mutes = read_records(settings).mutes.all()
        for mute in mutes:
            echo_text(f"{mute.target}  until {format_iso_time(mute.until)}  {mute.by}: {mute.reason}")
        if not mutes:
            click.echo("nothing is muted", file=sys.stderr)
        return
    if not end and until is None:
        raise UsageError("a mute has an end: --until 2h")
    with open_existing(settings, clock) as records:
        if end:
            echo_text(unmute_target(records, target))
            return
        assert until is not None
        by = get_operator_name()
        echo_text(mute_target(settings, records, Mute(target, " ".join(reason.split()), by, clock.now(), until)))
