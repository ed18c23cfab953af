"""docs/commands.md: every command with its arguments and options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from reconciler.cli import COMMANDS, cli
from tests.docs.tables import table

HEAD = """\
# Commands

All but `init`, `convert`, `import` and `secret encrypt`, and `validate` and `diff` where they need none, read the
[settings](settings.md). Exit codes: 0 done; 1 refused, failed or findings; 2 the command line or the settings are
wrong. Results go to standard output, complaints and the log to standard error. `NO_COLOR` switches colours off;
without a terminal there are none. What `convert` and `import` do field by field: [convert.md](convert.md).

Who may not read the records, and is a member of the group that the setting `readers` names, has `get`, `describe`,
`plan`, `events`, `logs`, `top` and `history` carried out by the daemon, as long as one runs. All other commands are
for root and for the user of the daemon.

What these commands show has `***` in the place of secrets. Only `logs` shows lines as workloads wrote them: what they
write about their secrets is there for all who may look.

A resource is named by its key: `workload/GVC/NAME`, `gvc/NAME`, `secret/NAME`.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *(section for name in COMMANDS for section in _sections(name, command(name)))])


def command(name: str) -> click.Command:
    """The command ``name``."""
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def _sections(name: str, about: click.Command) -> Iterator[str]:
    """The section of a command, and of those below it."""
    yield _section(name, about)
    for part, below in about.commands.items() if isinstance(about, click.Group) else ():
        yield from _sections(f"{name} {part}", below)


def _section(name: str, about: click.Command) -> str:
    arguments = [each for each in about.params if isinstance(each, click.Argument)]
    options = [each for each in about.params if isinstance(each, click.Option)]
    usage = " ".join(["reconciler", name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    if isinstance(about, click.Group):
        usage += " COMMAND"
    example = str(about.epilog).removeprefix("Example: ")
    text = f"## {name}\n\n    {usage}\n\n{inspect.cleandoc(about.help or '')}\n\nFor example: `{example}`\n"
    if options:
        text += "\n" + table(("Option", "What it does"), map(_option, options))
    return text


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _option(option: click.Option) -> tuple[str, str]:
    return ", ".join(f"`{name}`" for name in option.opts) + "".join(_value(option)), option.help or ""


def _value(option: click.Option) -> Iterator[str]:
    if isinstance(option.type, click.Choice):
        yield f" `{'|'.join(map(str, option.type.choices))}`"
    elif not option.is_flag:
        kinds = {"integer": "N", "file": "FILE", "directory": "DIR", "path": "FILE"}
        kind = option.type.name.removesuffix(" range")
        yield f" `{option.metavar or kinds.get(kind, kind.upper())}`"
