"""The `reconciler` command: an overview, or one module per subcommand, imported when it is called."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler import __version__
from reconciler.cli.options import carry_out, unused_settings_option
from reconciler.cli.output.help import use_help_context
from reconciler.cli.output.printing import print_bug, print_error
from reconciler.errors import ReconcilerError, UsageError
from reconciler.terminal.standard_streams import prepare_streams

if TYPE_CHECKING:
    from reconciler.settings import Settings

GROUPS = {
    "Begin": ("up", "down", "init", "validate", "rules", "explain", "convert", "import"),
    "Plan and apply": ("plan", "diff", "apply", "approve", "refuse", "sync", "rollback", "run"),
    "Look": (
        *("status", "get", "describe", "events", "logs", "top", "usage", "history", "versions", "blame"),
        *("drift", "snapshots", "notifications", "render", "page"),
    ),
    "Operate": ("exec", "restart", "retry", "hold", "suspend", "resume", "command", "volume", "notify", "mute"),
    "Change Git": ("edit", "patch", "tag", "secret"),
    "Own and leave": ("orphan", "adopt", "eject"),
    "The daemon and this command": (
        *("settings", "install", "uninstall", "doctor"),
        *("backup", "restore", "completion", "version", "help"),
    ),
}
"""Heading → its subcommands, in the order of use. Every subcommand is in one of them."""


_FOLDER = Path(__file__).with_name("commands")
"""The modules of the subcommands (``import_`` for ``import``), each with the attribute ``command``."""


@cache
def read_commands() -> dict[str, str]:
    """Subcommand → help line: that of its overview, of the table of both programs, else of its module's first line."""
    from reconciler.command_words import SHARED_COMMANDS
    from reconciler.overviews.table import OVERVIEWS

    summaries = {name: overview.line for name, overview in OVERVIEWS.items()}
    for path in sorted(_FOLDER.glob("[!_]*.py")):
        with path.open(encoding="utf-8") as file:
            line = file.readline().strip().strip('"').partition(": ")[2]
        summaries[path.stem.rstrip("_")] = line[:1].upper() + line[1:]
    summaries |= {name: command.line for name, command in SHARED_COMMANDS.items()}
    return {name: summaries[name] for names in GROUPS.values() for name in names}


class LazyGroup(click.Group):
    """A group that imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the subcommands in the order of use."""
        return list(read_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The subcommand ``cmd_name``, or None."""
        from reconciler.overviews.table import OVERVIEWS

        if cmd_name in OVERVIEWS:
            from reconciler.cli.overview_commands import make_command

            return _complete_command(make_command(OVERVIEWS[cmd_name]))
        module = f"{cmd_name}{'_' * iskeyword(cmd_name)}"
        if not cmd_name.isidentifier() or cmd_name.endswith("_") or not os.path.isfile(_FOLDER / f"{module}.py"):
            return None
        command = import_module(f"reconciler.cli.commands.{module}").command
        assert isinstance(command, click.Command)
        return _complete_command(command)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``, in which ``--settings FILE`` may stand before the subcommand, too."""
        return super().parse_args(ctx, _move_settings(self, ctx, args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that ``args`` begin with; raises click's UsageError with the nearest name."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from reconciler.cli.foreign_words import explain_unknown

            ctx.fail(f"there is no command {args[0]!r}{explain_unknown(args[0], read_commands())}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the subcommands without importing them."""
        lines = read_commands()
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, lines[name]) for name in names])


def _complete_command(command: click.Command) -> click.Command:
    """``command``, and those below it, with what all have: their help, and ``--settings``."""
    if not any("--settings" in param.opts for param in command.params):
        unused_settings_option(command)
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        _complete_command(below)
    return use_help_context(command)


def _move_settings(group: LazyGroup, ctx: click.Context, args: list[str]) -> list[str]:
    """``args`` with the ``--settings FILE`` at their front, or before a command of a group, behind the subcommand."""
    option, rest = _take_settings(args)
    words, rest = rest[:1], rest[1:]
    if words and isinstance(group.get_command(ctx, words[0]), click.Group):
        nearer, rest = _take_settings(rest)
        words, option, rest = [*words, *rest[:1]], nearer or option, rest[1:]
    return [*words, *option, *rest]


def _take_settings(args: list[str]) -> tuple[list[str], list[str]]:
    """The ``--settings FILE`` at the front of ``args``, where it is, and the rest."""
    first = args[0] if args else ""
    count = 2 if first == "--settings" else int(first.startswith("--settings="))
    return args[:count], args[count:]


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: reconciler init manifests && reconciler validate manifests",
)
@click.version_option(__version__, "-V", "--version", prog_name="reconciler")
@unused_settings_option
def cli() -> None:
    """Apply the manifests of a Git repository, and write their status back to it.
    Settings: --settings, $RECONCILER_SETTINGS or /etc/reconciler/settings.yaml.
    Exit codes: 0 success; 1 refused, failed or findings; 2 usage; 3 more to do.
    """


def main() -> None:
    """Run the command line and exit; a command returns its exit code, None being 0."""
    # At exit the interpreter collects in memory that the kernel frees anyway: 8 ms of `--help`, 40 of 260 of `apply`.
    atexit.register(gc.freeze)
    sys.exit(_run_cli())


def _run_cli() -> int:
    prepare_streams()
    try:
        code = carry_out(_run_command, _ask_daemon)
        sys.stdout.flush()
    except click.ClickException as error:
        _show_usage_error(_explain_unknown(error))
        return error.exit_code
    except ReconcilerError as error:
        _print_error(error)
        return 2 if isinstance(error, UsageError) else 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OSError as error:
        return _report_write_error(error)
    except Exception as error:  # noqa: BLE001 - people get the place, and never data out of an exception's text
        return print_bug(error)
    return code if isinstance(code, int) else 0


def _explain_unknown(error: click.ClickException) -> click.ClickException:
    """``error`` with the words of this program and the nearest name, if it is an unknown option or command of a group.

    Older versions of click have no class for the latter.
    """
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    word = getattr(error, "command_name", "")
    if ctx is not None and isinstance(error, click.NoSuchOption):
        from reconciler.cli.foreign_words import explain_option

        options = [name for param in ctx.command.get_params(ctx) for name in (*param.opts, *param.secondary_opts)]
        hint = explain_option(error.option_name, options)
        return click.UsageError(f"there is no option {error.option_name!r}{hint}", ctx)
    if ctx is not None and word and isinstance(ctx.command, click.Group):
        from reconciler.cli.foreign_words import explain_unknown_below

        hint = explain_unknown_below(ctx.info_name or "", word, ctx.command.list_commands(ctx))
        return click.UsageError(f"there is no command {word!r} of `{ctx.info_name}`{hint}", ctx)
    return error


def _show_usage_error(error: click.ClickException) -> None:
    """Print the error as all others are, below the usage of the command."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is not None:
        click.echo(f"{ctx.get_usage()}\nTry '{ctx.command_path} --help' for help.\n", err=True)
    message = error.format_message()
    print_error(message[:1].lower() + message[1:].removesuffix("."))


def _run_command() -> object:
    from reconciler.cli.output.progress import show_progress

    with show_progress():
        return cli.main(prog_name="reconciler", standalone_mode=False)


def _ask_daemon(settings: Settings, command: str, parameters: Mapping[str, Any]) -> int:
    from reconciler.cli.reader_requests import answer_command

    return answer_command(settings, command, parameters)


def _print_error(error: ReconcilerError) -> None:
    """Print the error on stderr; errors in the settings are shown as findings, with their lines."""
    from reconciler.settings import SettingsError

    if not isinstance(error, SettingsError):
        print_error(str(error))
        return
    from reconciler.cli.output.printing import print_findings
    from reconciler.render.excerpt import Excerpts
    from reconciler.render.findings import explain_hint, severity_counts

    print_error(f"{severity_counts(error.findings)} in the settings {error.path}")
    print_findings(error.findings, Excerpts(lambda _: error.raw, secrets=False), sys.stderr)
    click.echo(explain_hint(error.findings), nl=False, err=True)


def _report_write_error(error: OSError) -> int:
    """The exit code where stdout is closed by its reader, or the disk is full."""
    if error.errno not in (errno.EPIPE, errno.ENOSPC):
        return print_bug(error)
    # Without this the interpreter reports the error again at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.ENOSPC:
        print_error(f"the output could not be written: {error.strerror}")
    return 1
