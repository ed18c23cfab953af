"""`reconciler notify`: show what was sent to whom, and try a rule."""

from __future__ import annotations

import time
from pathlib import Path

import click

from reconciler.cli.options import get_operator_name, load_settings_as_owner, settings_option
from reconciler.cli.output.forms import Output, output_option
from reconciler.cli.output.printing import echo_text
from reconciler.cli.overview_commands import Display, make_command, show_overview
from reconciler.overviews.table import NOTIFICATIONS

PATIENCE = 20.0
"""Seconds that a test waits for the answers of the receivers."""
_POLL_SECONDS = 0.2


@click.group(epilog="Example: reconciler notify test ops")
def command() -> None:
    """Show the messages that were sent by the setting `notifications`, and try its rules."""


_list = make_command(NOTIFICATIONS)
_list.short_help = NOTIFICATIONS.line
_list.epilog = "Example: reconciler notify list --last 20"
command.add_command(_list, "list")


@command.command(NOTIFICATIONS.name, short_help="Show one message.", epilog="Example: reconciler notify show 12")
@click.argument("id", type=click.IntRange(min=1))
@output_option()
@settings_option
def show(settings_file: Path, id: int, output: Output) -> int:  # noqa: A002 - the parameter of the overview
    """Show the message ID with its text, its receiver, and what that answered."""
    parameters = {"last": 1, "id": id, "sort": None, "limit": None, "since": None}
    return show_overview(NOTIFICATIONS, settings_file, parameters, Display(output=output))


command.commands["show"] = command.commands.pop(NOTIFICATIONS.name)


@command.command("test", short_help="Send a test message.", epilog="Example: reconciler notify test ops")
@click.argument("rule", default="")
@settings_option
def send_test(settings_file: Path, rule: str) -> int:
    """Send a test to the channels of RULE, or of all rules, and show the answers.

    The daemon sends it. Without one, it is sent when the next one starts.
    """
    from reconciler.clock import SystemClock
    from reconciler.daemon.lock import find_lock_holder
    from reconciler.notifications.listing import format_delivery, list_delivery
    from reconciler.operations.commands import open_existing
    from reconciler.operations.notifications import are_ended
    from reconciler.operations.notifications import send_test as record_test
    from reconciler.records.notifications.deliveries import DeliveryStatus
    from reconciler.render.style import TextStyle

    settings, clock = load_settings_as_owner(settings_file), SystemClock()
    with open_existing(settings, clock) as records:
        numbers = record_test(settings, records, rule, get_operator_name(), clock.now())
        if find_lock_holder(settings.state) is None:
            click.echo("no daemon runs; the next one sends it")
            return 0
        deadline = time.monotonic() + PATIENCE
        while not are_ended(records, numbers) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        deliveries = [one for number in numbers if (one := records.deliveries.get(number)) is not None]
        for delivery in deliveries:
            echo_text(format_delivery(list_delivery(delivery), TextStyle()))
        return 0 if all(delivery.status is DeliveryStatus.SENT for delivery in deliveries) else 1
