"""docs/commands.md: every command with its arguments and options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from docs.generate.tables import table
from reconciler.cli import COMMANDS, cli

HEAD = """\
# Commands

All but `init`, `convert`, `import` and `secret encrypt`, and `validate` and `diff` where they need none, read the
[settings](settings.md). Exit codes: 0 success; 1 refused, failed or findings; 2 the command line or the settings are
wrong. Results go to standard output, complaints and the log to standard error. `NO_COLOR` switches colours off;
without a terminal there are none. What `convert` and `import` do field by field: [convert.md](convert.md).

Who may not read the records, and is a member of the group that the setting `readers` names, has `get`, `describe`,
`plan`, `events`, `logs`, `top` and `history` carried out by the daemon, as long as one runs. All other commands are
for root and for the user of the daemon. A reader has at most 4 commands at once, all readers 16; where these are taken,
the oldest command of the user with most of them makes room. A command that follows nothing ends after 5 minutes.

Root works as the user that the state directory belongs to, the daemon of root too: what lies there is that user's to
choose. Only the FILE of `backup` and `restore`, the plan of `--out` and `--plan`, and the settings are opened by root.

What these commands show has `***` in the place of secrets. Only `logs` shows lines as workloads wrote them: what they
write about their secrets is there for all who may read.

A resource is named by its key: `workload/GVC/NAME`, `gvc/NAME`, `secret/NAME`; `events` and `describe` also take
`source/NAME`. What does not exist (a source, resource, GVC, rule or revision) is an error of every command that names
it: exit code 1, and the nearest name. What was deleted has its events, logs and history for as long as they are kept.
"""

NOTES = {
    "describe": """\
`describe source/NAME` begins with `Live`: `yes`, `no: …` (refused, unreadable, held, suspended, and why), `not all of
it: …` (steps wait or failed) or `not yet: …` (no run has read the newest commit). Its exit code is 0 whatever the
answer; programs read `ready` below `sources` of `get -o json`.
""",
    "get": """\
As JSON and YAML, `items` are the resources and `sources` all sources: `name`, `ready` (the newest revision that was
read is applied, all of it), `reason`, `message` and `since` of that, `applied`, `refused` (a revision), `pinned` and
`suspended` (by whom, since when, why), each null where it is not so.
""",
    "plan": """\
A changed field is named by its path: `spec.containers[main].env[PORT].value`. An entry of a list is named by its name
(its number for ports, its path for volumes), else by its index in the new list; an entry that goes, and has no name,
by its index in the old one: `bindings[0].principalLinks`. Lists whose order means nothing are sorted before they are
compared, so that an index in them may not be that of the file; the line beside it is. Lists of plain values are one
field; text and Markdown show the entries that come and go. With `--format json` each step has `changes`, each with
`path`, `before`, `after` (null where there is nothing) and `class` (`in-place`, `scale-only`, `new-version`,
`replace`). `[order]` at the end of a path: the same entries stand in another order. `hold` says why a step waits,
`blocked_by` which such step it waits for. `hold_digest` covers the steps that wait for an approval, `retained` lists
what is no longer in Git and stays; `pinned` and `suspended` say who holds the source back. `format_version` changes
where a field gets another name or meaning. Of several sources
the document is a list, in which a source that cannot be read has `error` (`reason`, `message`) and no plan. In the
summary, resources are counted, not steps.
""",
}
"""Command → what its help has no room for."""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, overview(), *(section for name in COMMANDS for section in _sections(name, command(name)))])


def overview() -> str:
    """Every command with its line in the help, and a link to its section."""
    return table(("Command", "What it does"), ((f"[{name}](#{name})", line) for name, line in COMMANDS.items()))


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
    if name in NOTES:
        text += f"\n{NOTES[name]}"
    if options:
        text += "\n" + table(("Option", "What it does"), map(_option, options))
    return text


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: click.Option) -> tuple[str, str]:
    return ", ".join(f"`{name}`" for name in option.opts) + "".join(_value(option)), option.help or ""


def _value(option: click.Option) -> Iterator[str]:
    if isinstance(option.type, click.Choice):
        yield f" `{'|'.join(map(str, option.type.choices))}`"
    elif not option.is_flag:
        kinds = {"integer": "N", "file": "FILE", "directory": "DIR", "path": "FILE"}
        kind = option.type.name.removesuffix(" range")
        yield f" `{option.metavar or kinds.get(kind, kind.upper())}`"
