"""The words of the command: groups and commands of click, made of the rows of the table when they are called.

The Tab key completes words from the table and names from the server, and nothing where that is too slow.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click

from reconciler import __version__
from reconciler.errors import ReconcilerError, RefusedError
from reconciler.platform_cli.lists.forms import FormType
from reconciler.platform_cli.references import SOURCE
from reconciler.platform_cli.refusals import ApiError
from reconciler.platform_cli.table.kinds import KINDS
from reconciler.platform_cli.table.operator_rows import OPERATOR_ROWS
from reconciler.platform_cli.table.program_rows import PROGRAM_ROWS, SECTIONS, WORD_ALIASES, WORD_TITLES
from reconciler.platform_cli.table.resource_rows import kind_rows
from reconciler.platform_cli.table.row import COMMON, LISTING, Option, Row

COMPLETE_VARIABLE = "_PLATFORM_COMPLETE"
"""The variable by which the script of completion asks."""
COMPLETION_SECONDS = 0.3
"""How long a completion waits for the server."""
_PROFILE = "profile"
_OF_PROFILES = ("profile", "login", "logout")
_TARGETS = ("target", "ref")
"""Arguments that ``KIND NAME`` can stand for."""
_OF_SOURCES = ("source", "target")
"""Arguments that are completed by the names of sources; a target can be a key too."""
_NAMED = frozenset({"gvc", "location", "profile", "serviceaccount"})
"""Options whose values are names of the kind that they are called after."""
_REFERENCE = re.compile(r"([<\[])(\w+)(\.\.\.)?[>\]]")


def _print_version(ctx: click.Context, _param: click.Parameter, requested: bool) -> None:
    if requested and not ctx.resilient_parsing:
        click.echo(__version__)
        ctx.exit()


_VERSION = click.Option(
    ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print the version."
)


def all_rows() -> list[Row]:
    """Every command, its words with those of its kind, in the order of their words."""
    rows = [row._replace(words=(kind, *row.words)) for kind in KINDS for row in kind_rows(kind)]
    return sorted([*rows, *PROGRAM_ROWS, *OPERATOR_ROWS], key=lambda row: row.words)


_FOREIGN_WORDS = {
    "completion": "misc install-completion",
    "help": "--help",
    "list": "workload get",
    "ls": "workload get",
    "ps": "top",
    "sources": "status",
    "version": "--version",
}
"""A word of other tools → what does the same; by spelling alone it could be a command that changes things."""


class CommandGroup(click.Group):
    """Commands that begin with the same words; one is made when it is called."""

    def __init__(self, name: str, rows: Iterable[tuple[tuple[str, ...], Row]], **settings: Any) -> None:
        super().__init__(name, **settings)
        self._rows: dict[str, list[tuple[tuple[str, ...], Row]]] = {}
        for words, row in rows:
            self._rows.setdefault(words[0], []).append((words[1:], row))
        self._aliases = {
            alias: word for word, below in self._rows.items() for alias in _get_word_aliases(word, below, top=not name)
        }

    @property
    def _unavailable(self) -> list[tuple[tuple[str, ...], Row]]:
        """What every word leads to where no command is available; else nothing."""
        rows = [row for below in self._rows.values() for _, row in below]
        return [((), rows[0])] if all(row.instead for row in rows) else []

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The words that can follow."""
        return sorted(self._rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """What follows the word ``cmd_name``, or an alias of it."""
        word = self._aliases.get(cmd_name, cmd_name)
        below = self._rows.get(word) or self._unavailable
        if not below:
            return None
        if below[0][0]:
            return CommandGroup(word, below, help=_group_help(word), params=[_VERSION], no_args_is_help=True)
        return RowCommand(word, below[0][1])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with; raises click's UsageError with the nearest word."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from reconciler.model.suggest import find_closest_word

            near = self._holder_of(args[0]) or find_closest_word(args[0], [*self._rows, *self._aliases])
            hint = f"; did you mean {near}?" if near else f"; there are: {', '.join(sorted(self._rows))}"
            if ctx.parent is None and args[0].lower() in _FOREIGN_WORDS:
                hint = f"; here it is `platform {_FOREIGN_WORDS[args[0].lower()]}`"
            where = f" of `{ctx.command_path}`" if ctx.parent is not None else ""
            ctx.fail(f"there is no command {args[0]!r}{where}{hint}")
        return super().resolve_command(ctx, args)

    def _holder_of(self, word: str) -> str:
        """``workload get`` for ``get``: the words of a command that ends so; "" if there is none."""
        texts = [first for first, below in self._rows.items() if any(words[:1] == (word,) for words, _ in below)]
        return f"{'workload' if 'workload' in texts else texts[0]} {word}" if texts else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the words that can follow, with their aliases."""
        by_word: dict[str, list[str]] = {}
        for alias, word in self._aliases.items():
            by_word.setdefault(word, []).append(alias)
        there = {word for word, below in self._rows.items() if not all(row.instead for _, row in below)}
        sections = _list_sections(there) if not self.name else {"Commands": sorted(there)}
        for title, words in sections.items():
            lines = [(", ".join((word, *by_word.get(word, ()))), _short_help(word, self._rows[word])) for word in words]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)
        if lacking := sorted(self._rows.keys() - there):
            with formatter.section("Not available here; each says what to do instead"):
                formatter.write_text(", ".join(lacking))


def _get_word_aliases(word: str, below: Sequence[tuple[tuple[str, ...], Row]], *, top: bool) -> tuple[str, ...]:
    if top and word in KINDS:
        return KINDS[word].aliases
    if below[0][0]:
        return WORD_ALIASES.get(word, ()) if top else ()
    return below[0][1].aliases


def _list_sections(words: Set[str]) -> dict[str, list[str]]:
    """Heading → those of the first ``words`` of commands below it; kinds come after what is done with them."""
    sections = {title: [word for word in named if word in words] for title, named in SECTIONS.items()}
    titled = {word for named in sections.values() for word in named}
    return {**sections, "Kinds and more": sorted(words - titled)}


def _short_help(word: str, below: Sequence[tuple[tuple[str, ...], Row]]) -> str:
    return _group_help(word) if below[0][0] else below[0][1].summary


def _group_help(word: str) -> str:
    return f"{KINDS[word].title if word in KINDS else WORD_TITLES[word]}."


class RowCommand(click.Command):
    """The command of a row. Its help shows an example, and its own options before those of every command."""

    def __init__(self, name: str, row: Row) -> None:
        own, common = [*map(_make_option, row.options)], [*map(_make_option, _list_common_options(row)), _VERSION]
        listing = [*map(_make_option, list_listing_options(row))]
        super().__init__(
            name,
            params=[*_make_arguments(row), *own, *listing, *common],
            callback=partial(_run_row, row),
            help=row.own_help,
            short_help=row.summary,
            context_settings={"ignore_unknown_options": bool(row.instead), "allow_extra_args": bool(row.instead)},
        )
        self._row = row
        self._own, self._listing, self._common = own, listing, common

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``, where ``KIND NAME`` is one reference."""
        return super().parse_args(ctx, _join_target(self, self._row, args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options; none of a command that is not available, but what to do instead."""
        if self._row.instead:
            with formatter.section("Not available here"):
                formatter.write_text(self._row.instead)
            return
        common = [*self._common, *filter(None, [self.get_help_option(ctx)])]
        titled = (("Options", self._own), ("Options of lists", self._listing), ("Options of every command", common))
        for title, options in titled:
            if records := [record for option in options if (record := option.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Show the example, as it can be copied: in one line."""
        from reconciler.platform_cli.table.examples import example_of

        if not self._row.instead:
            formatter.write(f"\nExample:\n  {example_of(self._row)}\n")


def _list_common_options(row: Row) -> Iterator[Option]:
    """The common options that no option of the row has the name of."""
    taken = {name for option in row.options for name in (*option.also, *option.names.split("/"))}
    for option in COMMON:
        if names := [name for name in option.names.split("/") if name not in taken]:
            yield option._replace(names="/".join(names), also=tuple(name for name in option.also if name not in taken))


def list_listing_options(row: Row) -> tuple[Option, ...]:
    """The options of lists that the command of ``row`` has."""
    return LISTING if row.lists else ()


def _join_target(command: click.Command, row: Row, args: list[str]) -> list[str]:
    """``args`` with ``KIND/NAME`` for each ``KIND NAME`` in the place of a reference."""
    references = _REFERENCE.findall(row.argument)
    if not references or references[0][1] not in _TARGETS or references[0][2]:
        return args
    from reconciler.model.target import find_kind

    words = _find_words(command, args)
    if len(words) <= len(references) or not find_kind(args[words[0]]):
        return args
    at, after = words[:2]
    joined = [*args[:at], f"{args[at]}/{args[after]}", *args[at + 1 :]]
    del joined[after]
    return joined


def _find_words(command: click.Command, args: Sequence[str]) -> list[int]:
    """The positions of the words of ``args`` that are no options, up to ``--``."""
    valued = {
        name for param in command.params if isinstance(param, click.Option) and not param.is_flag for name in param.opts
    }
    positions: list[int] = []
    is_value = False
    for position, word in enumerate(args):
        if word == "--":
            break
        if not is_value and not (word.startswith("-") and len(word) > 1):
            positions.append(position)
        is_value = not is_value and word in valued
    return positions


def _make_arguments(row: Row) -> Iterator[click.Parameter]:
    for at, (bracket, name, many) in enumerate(_REFERENCE.findall(row.argument)):
        # What follows a reference is a command in a container, whose words may be empty.
        kind = SOURCE if name in _OF_SOURCES else _get_referred_kind(row)
        settings = {} if at else {"shell_complete": _make_completer(kind), "callback": _not_empty}
        yield click.Argument([name], required=bracket == "<", nargs=-1 if many else 1, **settings)


def _not_empty(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """``value`` without empty references, as scripts write them with variables that are not set.

    Raises click's BadParameter where a reference is required.
    """
    values = value if isinstance(value, tuple) else (value,)
    if param.required and "" in values:
        raise click.BadParameter("it is empty", ctx, param)
    return tuple(filter(None, value)) if isinstance(value, tuple) else value or None


def _get_referred_kind(row: Row) -> str:
    """The kind of the references that a command takes."""
    return _PROFILE if row.words[0] in _OF_PROFILES else next(iter(row.passed), "")


def _make_completer(kind: str) -> Any:
    """What completes a name of ``kind``: names from the server, or of profiles; None if neither has any."""
    if not kind:
        return None

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
        return complete_names(kind, _with_those_before(ctx, ctx.params), incomplete)

    return complete


def complete_names(kind: str, options: Mapping[str, Any], incomplete: str) -> list[str]:
    """The names of resources of ``kind``, or of profiles, that begin with ``incomplete``.

    There are none if the server does not answer in time. ``options`` are the common ones of the call.
    """
    from reconciler.platform_cli.session import Session

    session = Session(options, seconds=COMPLETION_SECONDS)
    try:
        if kind == _PROFILE:
            return [name for name in session.profiles.profiles if name.startswith(incomplete)]
        return session.names(kind, incomplete, COMPLETION_SECONDS) if kind in KINDS or kind == SOURCE else []
    except ReconcilerError:
        return []
    finally:
        session.close()


def _make_option(option: Option) -> click.Option:
    names = option.names.split("/")
    if option.flag:
        long = names[-1]
        if long.startswith("--no-"):
            return click.Option([long, _get_parameter_name(option)], is_flag=True, help=option.help)
        declared = [*option.also, *names[:-1], f"{long}/--no-{long.removeprefix('--')}"]
        return click.Option([*declared, _get_parameter_name(option)], default=option.default, help=option.help)
    return click.Option(
        [*option.also, *names, _get_parameter_name(option)],
        required=option.required,
        multiple=option.multiple,
        **({} if option.default is None else {"default": option.default}),
        metavar=option.metavar or ("FORM" if option.more_choices else None),
        shell_complete=_make_completer(_get_parameter_name(option) if _get_parameter_name(option) in _NAMED else ""),
        show_default=option.default is not None,
        type=_make_type(option),
        help=_describe_option(option),
    )


def _describe_option(option: Option) -> str:
    """The help of an option, with the forms of one whose forms do not fit beside it."""
    forms = f" One of {', '.join((*option.choices, *option.more_choices))}." if option.more_choices else ""
    return option.help + forms + (" May be repeated." if option.multiple else "")


def _make_type(option: Option) -> click.ParamType:  # type: ignore[type-arg] # only newer versions of click have it
    if option.more_choices:
        return FormType((*option.choices, *option.more_choices))
    return click.Choice(option.choices) if option.choices else click.STRING


def _run_row(row: Row, **values: Any) -> int | None:
    """Call the function of ``row`` with its options; the common ones are for the session. Returns its exit code."""
    from reconciler.platform_cli.session import Session

    ctx = click.get_current_context()
    if row.instead:
        raise RefusedError(f"`{ctx.command_path}` is not available: {row.instead}")
    own, common = (
        {_get_parameter_name(option) for option in row.options},
        {_get_parameter_name(option) for option in (*COMMON, *list_listing_options(row))},
    )
    session = Session(_with_those_before(ctx, {name: values.get(name) for name in common - own}))
    module, _, name = row.run.partition(":")
    function = getattr(import_module(f"reconciler.platform_cli.commands.{module}"), name)
    if row.lists and values.get("watch"):
        from reconciler.platform_cli.lists.watching import repeat_command

        function = partial(repeat_command, function)
    try:
        code: int | None = function(
            session, *row.passed, **{key: value for key, value in values.items() if key in own or key not in common}
        )
        return code
    except ApiError as error:
        kind, ref = _get_referred_kind(row), values.get("ref") or ()
        refs = (ref,) if isinstance(ref, str) else ref
        hint = session.nearest(kind, refs, COMPLETION_SECONDS) if error.is_missing and kind in KINDS else ""
        if not hint:
            raise
        raise ApiError(f"{error}; {hint}", error.status, error.code, error.findings) from None
    finally:
        session.close()


def _with_those_before(ctx: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Common options with those that stand before the command; one behind it wins."""
    before = ctx.find_root().params
    return {name: before.get(name) if value is None else value for name, value in values.items()}


def _get_parameter_name(option: Option) -> str:
    """The name of the parameter of a function that takes ``option``."""
    long = next(name for name in option.names.split("/") if name.startswith("--"))
    name = long.removeprefix("--").replace("-", "_")
    return f"{name}_" if hasattr(builtins, name) or iskeyword(name) else name


def make_program() -> CommandGroup:
    """The whole command."""
    return CommandGroup(
        "",
        ((row.words, row) for row in all_rows()),
        params=[*map(_make_option, COMMON), _VERSION],
        help="Manage the resources of an org through the HTTP API of the daemon. Flags win over environment variables "
        "(PLATFORM_PROFILE, _ORG, _GVC, _TOKEN, _ENDPOINT), and those over the profile.",
        epilog="Example: platform login && platform workload get",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        no_args_is_help=True,
    )
