"""Passes an operator's command on: a row in the records, and a wake-up for the daemon."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import get_operator_name, load_settings_as_owner
from reconciler.cli.output.printing import echo_text
from reconciler.errors import RefusedError

if TYPE_CHECKING:
    from reconciler.operations.commands import OperatorCommands


def run_operation(settings_file: Path, verb: Callable[[OperatorCommands], str], reason: str = "operator") -> bool:
    """Carry out ``verb``, print its result, and wake the daemon; returns whether one runs.

    Raises RefusedError and RecordsError.
    """
    from reconciler.clock import SystemClock
    from reconciler.daemon.wake import wake_daemon
    from reconciler.operations.commands import run_operator_command

    settings = load_settings_as_owner(settings_file)
    echo_text(run_operator_command(settings, SystemClock(), get_operator_name(), verb))
    woken = wake_daemon(settings.state, None, reason)
    if not woken:
        click.echo("no daemon runs; the next `reconciler apply` follows it")
    return woken


def confirm_loss(loss: str, *, yes: bool) -> None:
    """Let the operator confirm ``loss``, unless ``yes``. Raises RefusedError without a terminal, Abort after a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise RefusedError(f"{loss}; to do it, add --yes")
    click.confirm(f"{loss}. Go on?", abort=True, err=True)


def format_megabytes(size: int) -> str:
    """``size`` (bytes) for people."""
    return f"{size / 1e6:.1f} MB"


def parse_until(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Callback of an option that is a time or a duration from now: returns seconds since the epoch."""
    from reconciler.clock import SystemClock
    from reconciler.times import parse_future

    if value is None:
        return None
    now = SystemClock().now()
    try:
        end = parse_future(value, now)
    except ValueError:
        raise click.BadParameter("write a time such as 2026-01-31T12:00:00Z, or 30m, 2h, 3d", ctx, param) from None
    if end <= now:
        raise click.BadParameter("that time has passed", ctx, param)
    return end
