"""docs/commands.md: every command with its arguments and options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from docs.generate.tables import table
from reconciler.cli import cli, read_commands

HEAD = """\
# Commands

All commands except `init`, `rules`, `explain`, `convert`, `import`, `secret encrypt`, `settings init`, `install`,
`uninstall`, `up`, `down`, `completion` and `help` read the [settings](settings.md); `validate`, `diff` and `version`
also work without. Exit codes: 0 success; 1 refused, failed or findings; 2 the command line or the settings are wrong;
3 more to do: `status` waits, `plan --detailed-exitcode` has steps. Results go to standard output, errors and the log
to standard error. `NO_COLOR` disables colours; without a terminal, or where `TERM` is `dumb`, there are none. On a
terminal, long lines of text are folded between words; `-o wide`, JSON, YAML and logs keep theirs whole. Ctrl-C ends a
command with 130.
[convert.md](convert.md) describes `convert` and `import` field by field.

For members of the group in the setting `readers`, who cannot read the records, `status`, `get`, `describe`, `plan`,
`events`, `logs`, `top`, `snapshots` and `history` ask the [HTTP API](http.md#overviews) of the running daemon, at its
socket. All other commands are for root and the daemon's user.

Commands of root, and a daemon that root starts, act as the owner of the state directory, who controls its content. Only
the FILE of `backup` and `restore`, the plan of `--out` and `--plan`, and the settings are opened as root.

What reads takes `-o FORM`: `text`, `wide` (more columns, whole messages), `json`, `yaml`, `name` (a name a line, as
other commands take it) and `jsonpath=PATH`, as in kubectl: `.name`, `['name']`, `[0]`, `[-1]`, `[0:2]`, `[*]`,
`..name`, `[?(@.kind=="workload")]`, `{range .items[*]}{.name}{"\\n"}{end}`. One resource that was asked for is one
object, and several are `items`; `events` and `logs` are one object a line in JSON. Lists take `-l` with a selector of
tags (`k=v`, `k!=v`, `k`, `!k`, `k in (a,b)`, `k notin (a,b)`, with commas between), `--sort-by FIELD` (`-` before it:
backwards), `--limit N`, `--since TIME` (`20s`, `1h30m`, a number of seconds, or a time) and `--no-headers`.

The output of these commands contains `***` instead of secrets. Only `logs` shows lines unchanged, and `status` and
`describe` the last one of a program that ended, if you may read logs here: if a workload writes its secrets, all
readers can see them. `edit` opens a secret as Git has it, for the editor alone.

A resource is named by its key, such as `workload/GVC/NAME` or `secret/NAME`; by `KIND/NAME` or `KIND NAME` where one
GVC has it, or `--gvc` names the GVC; by its link, such as `//gvc/GVC/workload/NAME`; or by its name alone, where no
other resource has it. Kinds have plurals and short names (`wl`, `vs`, `sec`, `loc`, `sa`, …). A source is `source/NAME`
or its name. What fits several resources is an error that lists them, exit code 2. An unknown source, resource, GVC,
rule or revision is an error of every command: exit code 1, and the nearest name. `--settings FILE` may stand before or
after every command. The events, logs and history of deleted resources stay for their normal retention.
"""

NOTES = {
    "describe": """\
`describe source/NAME` begins with `Live`: `yes`, `no: …` (refused, unreadable, pinned, suspended, and why), `not all of
it: …` (steps wait or failed) or `not yet: …` (no run has read the newest commit). Its exit code is 0 in each case;
programs read `ready` below `sources` of `get -o json`.
""",
    "status": """\
As JSON and YAML: `outlook` (well, progressing, waiting, failing) with its `exitCode`, `sources` as in `get` with
`newest`, `approvals` and an `outlook` of their own, `unready` (at most 50 resources with `outlook`, `reason` and
`message`; `unreadyCount` counts all), `daemonConditions`, and with a commit `commit`. A commit that is applied is live,
whatever became of later ones. What is suspended, rolled back or not approved waits for a person: exit code 3. Backups
that are too old, and a certificate of the API that expires soon, are in `daemonConditions` alone.
""",
    "get": """\
READY is the number of replicas that are ready, of those that should be; `yes` or `no` for what has no replicas, and for
a GVC whether all in it is well. `get` shows what is recorded and exits with 0, whatever that is, also where a source is
refused or cannot be read, which it says on standard error; [status](#status) tells a script whether all is well.

As JSON and YAML, `items` are the resources and `sources` all sources: `name`, `ready` (the newest read revision is
fully applied) with its `reason`, `message` and `since`, `applied`, `refused` (a revision), `pinned` and `suspended` (by
whom, since when, why); each is null if it does not apply.
""",
    "plan": """\
A changed field is named by its path: `spec.containers[main].env[PORT].value`. An entry of a list is named by its name
(its number for ports, its path for volumes, its prefix for routes, its key for taints), else by its index in the new
list; a removed entry without a name by its index in the old one: `bindings[0].principalLinks`. Lists without a
meaningful order are sorted before they are compared, so an index in them may differ from the file; the line beside it
is that of the file. Lists of plain values are one field; text and Markdown show the added and removed entries. With
`--format json` each step has `changes`, each with `path`, `before`, `after` (null without a value) and `class`
(`in-place`, `scale-only`, `new-version`, `replace`). `[order]` at the end of a path means the same entries in another
order. `hold` is the reason why a step waits, `blocked_by` the held step that it waits for. `hold_digest` covers the
steps that wait for an approval, `refusal` says who refused them, `retained` lists resources that are no longer in Git
and stay; `pinned` and `suspended` name the operator. `format_version` changes when a field gets another name or
meaning. With several sources the document is a list, in which an unreadable source has `error` (`reason`, `message`)
and no plan. The summary counts resources,
not steps.
""",
}
"""Command → a note in addition to its help."""


def page() -> str:
    """The text of the page."""
    sections = (section for name in read_commands() for section in _sections(name, command(name)))
    return "\n".join([HEAD, overview(), *sections])


def overview() -> str:
    """Every command with its line in the help, and a link to its section."""
    return table(("Command", "What it does"), ((f"[{name}](#{name})", line) for name, line in read_commands().items()))


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
    options = [each for each in about.params if isinstance(each, click.Option) and not each.hidden]
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
