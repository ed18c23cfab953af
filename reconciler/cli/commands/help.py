"""`reconciler help`: show the help of a command."""

from __future__ import annotations

import click


@click.command(epilog="Example: reconciler help apply")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of COMMAND, or list all commands, as `reconciler COMMAND --help` does."""
    parent = context.find_root()
    parent.invoke(parent.command.main, [*words, "--help"], prog_name="reconciler", standalone_mode=False)
