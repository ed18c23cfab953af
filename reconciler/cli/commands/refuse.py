"""`reconciler refuse`: refuse the deletes of a plan, with a reason."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.options import example_of, get_operator_name, load_settings_as_owner, settings_option, shared_option
from reconciler.cli.output.printing import echo_text


@click.command(epilog=example_of("refuse"))
@click.argument("digest")
@shared_option("refuse", "--reason", default="")
@settings_option
def command(settings_file: Path, digest: str, reason: str) -> None:
    """Refuse the steps that wait in the plan with this DIGEST: nobody is asked for their approval any more.

    They stay undone, and `reconciler status` says who refused them and why. The refusal is of exactly these steps: a
    commit that changes them makes another plan, which waits anew. `reconciler approve` of the same digest ends it.
    """
    from reconciler.daemon.wake import wake_daemon
    from reconciler.operations.approval import record_refusal

    settings = load_settings_as_owner(settings_file)
    echo_text(record_refusal(settings, digest, get_operator_name(), reason))
    wake_daemon(settings.state, None, "refusal")
