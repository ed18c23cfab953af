"""Arguments that name a resource or source: in one word or two, whole or in part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reconciler.cli.options import load_settings_as_owner, records_or_none

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from reconciler.model.key import Key
    from reconciler.model.target import Target
    from reconciler.settings import Settings

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Callback = Callable[[click.Context, click.Parameter, Any], Any]

_GVC = "gvc"


_COMMIT = re.compile(r"[0-9a-f]{4,64}")
"""What can be the beginning of a commit's id."""
_MOST_COMPLETED = 1000
"""The most names that a shell gets to complete a word."""


class TargetArgument(click.Argument):
    """An argument that names a resource or source: ``KIND NAME`` counts as one word."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The keys in Git that begin so; without a slash, the kinds and the names of sources."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in _complete_target(ctx, incomplete)]


class KindArgument(click.Argument):
    """An argument that is a kind, before one that is a name: ``KIND/NAME`` counts as both."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The kinds that begin so."""
        from click.shell_completion import CompletionItem

        from reconciler.model.key import KINDS
        from reconciler.model.target import SOURCE

        return [CompletionItem(kind) for kind in (*KINDS, SOURCE) if kind.startswith(incomplete)]


def complete_state(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The states of resources that begin so."""
    from reconciler.queries.browsing import STATES

    return [state for state in STATES if state.startswith(incomplete.lower())]


class TargetCommand(click.Command):
    """A command some of whose arguments are targets or kinds."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``, in which ``KIND NAME`` and ``KIND/NAME`` are the same."""
        return super().parse_args(ctx, _split_targets(self, _join_kinds(self, args)))


def key_argument(name: str = "key", *, required: bool = True) -> Callable[[_Command], _Command]:
    """Add an argument that is passed on as the Key of a resource, and ``--gvc``."""
    return _add_target(name, required=required, callback=resolve_key)


def target_argument(name: str, callback: _Callback, **attributes: Any) -> Callable[[_Command], _Command]:
    """Add an argument that names a resource or source, passed on as ``callback`` returns it, and ``--gvc``."""
    return _add_target(name, callback=callback, **attributes)


def read_target(ctx: click.Context, param: click.Parameter, value: str | None) -> Target | None:
    """Callback of a target that is looked up later. Raises click's UsageError where the text is none."""
    from reconciler.model.target import find_kind, parse_target

    if value is None:
        return None
    if find_kind(value):
        raise click.BadParameter(f"{value!r} is a kind; write the name after it: {value} NAME", ctx, param)
    try:
        return parse_target(value, read_gvc(ctx))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def read_revision(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Callback of a target that can be a commit, too: ``HEAD`` is that of the repository here."""
    if not value:
        return ""
    if value.startswith(("HEAD", "@")):
        return _find_commit_here(ctx, param, value)
    return value if _COMMIT.fullmatch(value) else str(read_target(ctx, param, value))


def _find_commit_here(ctx: click.Context, param: click.Parameter, expression: str) -> str:
    """The id of the commit ``expression`` of the repository of the working directory."""
    import pygit2

    try:
        path = pygit2.discover_repository(".")
        if path is None:
            raise click.BadParameter(f"{expression} is a commit of the repository here, and here is none", ctx, param)
        return str(pygit2.Repository(path).revparse_single(expression).peel(pygit2.Commit).id)
    except (KeyError, ValueError, pygit2.GitError) as error:
        raise click.BadParameter(f"{expression} is no commit of the repository here: {error}", ctx, param) from None


def resolve_key(ctx: click.Context, param: click.Parameter, value: str | None) -> Key | None:
    """Callback of a target that is a resource. Raises UsageError and NotFoundError."""
    target = read_target(ctx, param, value)
    return target and (target.key or _find_resource(load_settings_as_owner(ctx.params["settings_file"]), target))


def resolve_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Callback of a target of both kinds: the name of a source, or the text of a key."""
    from reconciler.queries.targets import find_named_source

    target = read_target(ctx, param, value)
    assert target is not None
    if target.key is not None:
        return str(target.key)
    settings = load_settings_as_owner(ctx.params["settings_file"])
    source = find_named_source(settings, target)
    return source.removeprefix("source/") or str(_find_resource(settings, target))


def _find_resource(settings: Settings, target: Target) -> Key:
    from reconciler.queries.targets import resolve_resource

    with closing(records_or_none(settings)) as records:
        return resolve_resource(settings, records, target)


def _add_target(name: str, **attributes: Any) -> Callable[[_Command], _Command]:
    def add(command: _Command) -> _Command:
        declared = getattr(command, "__click_params__", ())
        with_option = command if any(param.name == _GVC for param in declared) else gvc_option(command)
        return click.argument(name, cls=TargetArgument, **attributes)(with_option)

    return add


def gvc_option(command: _Command) -> _Command:
    """Add the option ``--gvc NAME`` to ``command``, for targets that are named without a GVC."""
    words = "The GVC of what is named without one."
    return click.option("--gvc", metavar="NAME", expose_value=False, is_eager=True, callback=_remember_gvc, help=words)(
        command
    )


def read_gvc(ctx: click.Context) -> str:
    """The GVC that ``--gvc`` names, "" without it."""
    return ctx.meta.get(_GVC) or ""


def _remember_gvc(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    ctx.meta[_GVC] = value


def _complete_target(ctx: click.Context, incomplete: str) -> list[str]:
    """The words that ``incomplete`` may become; none where settings or records cannot be read."""
    from reconciler.errors import ReconcilerError
    from reconciler.model.key import KINDS

    kind = incomplete.partition("/")[0]
    try:
        settings = load_settings_as_owner(ctx.params["settings_file"])
        if "/" not in incomplete:
            words = [*(f"{kind}/" for kind in KINDS), *(source.name for source in settings.sources)]
        else:
            with closing(records_or_none(settings)) as records:
                words = records.desired.keys_of_kind(kind) if kind in KINDS else []
    except (ReconcilerError, OSError):
        return []
    return [word for word in words if word.startswith(incomplete)][:_MOST_COMPLETED]


def _join_kinds(command: click.Command, args: list[str]) -> list[str]:
    """``args`` with ``KIND/NAME`` for each ``KIND NAME`` in the place of a target."""
    from reconciler.model.target import find_kind

    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    joined = list(args)
    for number, argument in enumerate(arguments):
        words = list(_find_words(command, joined))
        if not isinstance(argument, TargetArgument) or len(words) < number + 2:
            continue
        at, after = words[number], words[number + 1]
        if find_kind(joined[at]):
            joined[at] += f"/{joined.pop(after)}"
    return joined


def _split_targets(command: click.Command, args: list[str]) -> list[str]:
    """``args`` with ``KIND NAME`` for the key or link in the place of a kind."""
    from reconciler.model.target import parse_target

    first = next((param for param in command.params if isinstance(param, click.Argument)), None)
    at = next(_find_words(command, args), None)
    if not isinstance(first, KindArgument) or at is None or "/" not in args[at]:
        return args
    try:
        target = parse_target(args[at])
    except ValueError:
        return args
    name = f"{target.gvc}/{target.name}" if target.gvc else target.name
    return [*args[:at], target.kind, name, *args[at + 1 :]] if target.kind else args


def _find_words(command: click.Command, args: list[str]) -> Iterator[int]:
    """The positions of the words that are no options, up to ``--``."""
    valued = {
        name
        for param in command.params
        if isinstance(param, click.Option) and not param.is_flag and not param.count
        for name in param.opts
    }
    is_value = False
    for position, word in enumerate(args):
        if word == "--":
            return
        if not is_value and not (word.startswith("-") and len(word) > 1):
            yield position
        is_value = not is_value and word in valued
