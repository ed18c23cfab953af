"""`reconciler exec`: run a command or a shell in a container."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load_settings_as_owner, records_or_none, settings_option
from reconciler.cli.target_arguments import TargetCommand, key_argument
from reconciler.errors import EngineError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from reconciler.engines.reading import ExecTarget
    from reconciler.model.key import Key
    from reconciler.operations.exec import ExecOptions
    from reconciler.settings import Settings


class ExecCommand(TargetCommand):
    """Its exit codes are those of programs, so that what is not there has that of a container that is not there."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``; exits with 125 where they name nothing."""
        from reconciler.cli.output.printing import print_error
        from reconciler.terminal.session import LOST

        try:
            return super().parse_args(ctx, args)
        except NotFoundError as error:
            print_error(str(error))
            ctx.exit(LOST)


@click.command(cls=ExecCommand, epilog="Example: reconciler exec workload/shop/api -- ls -l /")
@key_argument()
@click.argument("argv", metavar="[-- CMD...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--replica", metavar="NAME", default="", help="The replica; else the first one that is ready.")
@click.option("--container", metavar="NAME", default="", help="The container; else the first one.")
@click.option("--location", metavar="NAME", default="", help="Only replicas at this location.")
@click.option("-i", "--stdin", is_flag=True, expose_value=False, help="Not needed: CMD reads standard input anyway.")
@click.option("-t/-T", "--tty/--no-tty", default=None, help="Give CMD a terminal, or not; else as here.")
@settings_option
def command(settings_file: Path, key: Key, argv: tuple[str, ...], tty: bool | None, **names: str) -> int:
    """Run CMD in a container of the workload KEY on this host; else a shell.

    CMD has the variables, directory, user and limits of the container, and every key of a terminal. Only root and the
    daemon's user may run it, since variables contain secrets. Needs no daemon. Exits with the code of CMD: 128 and
    the signal that ended it; 126 if it may not run, 127 if there is none; 125 without a container.
    """
    from reconciler.cli.output.printing import print_error
    from reconciler.operations.exec import SHELL, ExecOptions, open_session
    from reconciler.terminal.relay import has_terminal, run_program
    from reconciler.terminal.session import LOST

    settings = load_settings_as_owner(settings_file)
    try:
        target = _find_exec_target(settings, key, ExecOptions(**names))
        opened = partial(open_session, settings, target, argv or SHELL)
        return run_program(opened, on_terminal=has_terminal() if tty is None else tty)
    except (EngineError, RefusedError) as error:
        print_error(str(error))
        return LOST


def _find_exec_target(settings: Settings, key: Key, options: ExecOptions) -> ExecTarget:
    from reconciler.operations.exec import find_target

    try:
        return find_target(settings, partial(records_or_none, settings), key, options)
    except PermissionError:
        message = "only root and the daemon's user may enter containers, since their variables contain secrets"
        raise RefusedError(message) from None
