"""`reconciler suspend`: suspend a source or a resource."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.operator import parse_until, run_operation
from reconciler.cli.options import example_of, settings_option, shared_option
from reconciler.cli.target_arguments import TargetCommand, resolve_name, target_argument


@click.command(cls=TargetCommand, epilog=example_of("suspend"))
@target_argument("target", resolve_name, metavar="SOURCE|KEY")
@shared_option("suspend", "--reason", default="")
@shared_option("suspend", "--until", callback=parse_until)
@settings_option
def command(settings_file: Path, target: str, reason: str, until: float | None) -> None:
    """Suspend a source or a resource: nothing of it is applied, deleted or healed until it is resumed.

    Dependents of a suspended resource wait for it; members of a suspended GVC do not. Status and `reconciler describe`
    show who suspended it and why.
    """
    run_operation(settings_file, lambda operations: operations.suspend(target, reason, until))
