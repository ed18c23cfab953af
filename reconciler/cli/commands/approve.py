"""`reconciler approve`: approve the deletes of a plan, or a rewritten history."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.options import example_of, get_operator_name, load_settings_as_owner, settings_option
from reconciler.cli.output.printing import echo_text


@click.command(epilog=example_of("approve"))
@click.argument("digest")
@settings_option
def command(settings_file: Path, digest: str) -> None:
    """Approve the deletes of the plan with this DIGEST, or the rewritten history of a source with this commit.

    Its first characters are enough, at least 4, if no other digest begins with them. `reconciler plan` prints the
    digest of a plan whose deletes wait. The digest covers the steps, not the commit, so a later commit that leaves the
    steps the same does not void the approval. A branch that was rewritten is followed from the approved commit on,
    this once.
    """
    from reconciler.daemon.wake import wake_daemon
    from reconciler.operations.approval import record_approval

    settings = load_settings_as_owner(settings_file)
    echo_text(record_approval(settings, digest, get_operator_name()))
    woken = wake_daemon(settings.state, None, "approval")
    click.echo(
        "the daemon continues with it" if woken else "no daemon runs; the next `reconciler apply` continues with it"
    )
