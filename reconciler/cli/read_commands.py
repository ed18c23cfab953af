"""Runs a command for a user with read-only access: refused unless it only reads."""

from __future__ import annotations

import sys

from click.core import ParameterSource

READING = {
    "get": {"kind", "name", "gvc", "output"},
    "describe": {"key"},
    "events": {"key", "follow", "last", "output"},
    "logs": {"query", "follow", "since", "until", "limit", "location", "replica", "output"},
    "top": {"gvc", "once", "interval", "output"},
    "snapshots": {"key", "deleted", "output"},
    "history": {"source", "last", "output"},
    "plan": {"revision", "name", "form", "detailed_exitcode", "blame"},
}
"""The commands, each with its permitted arguments and options; others name files, or change something."""


def refusal(words: list[str]) -> str:
    """Return why readers may not run the command line ``words``; ``""`` where they may, even if it has errors."""
    import click

    from reconciler.cli import cli

    name = words[0] if words else ""
    command = cli.get_command(click.Context(cli), name) if name in READING else None
    if command is None:
        return f"`{name}` is not for readers; they may run {', '.join(READING)}"
    try:
        context = command.make_context(name, words[1:], resilient_parsing=False)
    except (click.ClickException, click.exceptions.Exit):
        return ""  # the command itself reports the error
    named = [each for each in context.params if context.get_parameter_source(each) is ParameterSource.COMMANDLINE]
    other = sorted(set(named) - READING[name])
    return f"{name}: {', '.join(other)} may not be used by readers" if other else ""


def main() -> None:
    """Run the command line of this process."""
    from reconciler import cli
    from reconciler.cli.output.printing import print_error

    why = refusal(sys.argv[1:])
    if why:
        print_error(why)
        sys.exit(2)
    cli.main()


if __name__ == "__main__":
    main()
