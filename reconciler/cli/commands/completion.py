"""`reconciler completion`: print what a shell needs to complete commands and names."""

from __future__ import annotations

import click


@click.command(epilog="Example: reconciler completion fish > ~/.config/fish/completions/reconciler.fish")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion of commands, options, and of the names of resources and sources, for SHELL.

    For bash, write eval "$(reconciler completion bash)" into ~/.bashrc; for zsh, the same with zsh into ~/.zshrc.
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "reconciler", "_RECONCILER_COMPLETE").source())
