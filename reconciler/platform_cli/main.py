"""The `platform` command: runs a command line, and reports its errors."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from reconciler.errors import ReconcilerError, UsageError
from reconciler.platform_cli.command_line import COMPLETE_VARIABLE, all_rows, make_program
from reconciler.platform_cli.refusals import ApiError
from reconciler.platform_cli.table.row import COMMON, Option
from reconciler.terminal.standard_streams import prepare_streams

_BOOLEANS = ("true", "false")


def main() -> None:
    """Run the command line and exit: 0 success, 1 refused or failed, 2 usage, 130 interrupted."""
    # At exit the interpreter collects garbage in memory that the kernel frees anyway: 10 ms.
    atexit.register(gc.freeze)
    sys.exit(run_command_line(sys.argv[1:]))


def run_command_line(words: list[str]) -> int:
    """Run the command ``words``; returns its exit code."""
    prepare_streams()
    try:
        code = make_program().main(
            _normalize_words(words), prog_name="platform", complete_var=COMPLETE_VARIABLE, standalone_mode=False
        )
        sys.stdout.flush()
    except click.ClickException as unexplained:
        error = _explain_option(unexplained)
        if _find_output_format(words) in ("json", "json-slim"):
            _report_error(error.format_message(), _find_output_format(words))
        else:
            _show_usage_error(error)
        return error.exit_code
    except ReconcilerError as error:
        status, findings = (error.status, error.findings) if isinstance(error, ApiError) else (0, ())
        _report_error(str(error), _find_output_format(words), status, findings)
        return 2 if isinstance(error, UsageError) else 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except UnicodeEncodeError:
        # Bytes that are no text in UTF-8 come from there alone; a path of the API cannot have them.
        click.echo("error: an argument, or an environment variable, is not text in UTF-8", err=True)
        return 2
    except OSError as error:
        return _report_write_error(error)
    except Exception as error:  # noqa: BLE001 - people get the place, and never data out of an exception's text
        return _report_bug(error)
    return code if isinstance(code, int) else 0


def _explain_option(error: click.ClickException) -> click.ClickException:
    """``error`` with the nearest option, if it is about one that does not exist."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    from reconciler.model.suggest import find_closest_word

    options = [name for param in error.ctx.command.params for name in (*param.opts, *param.secondary_opts)]
    begun = [name for name in options if name.startswith(error.option_name)]
    near = begun[0] if begun else find_closest_word(error.option_name, options)
    hint = f"; did you mean {near}?" if near else ""
    return click.UsageError(f"there is no option {error.option_name!r}{hint}", error.ctx)


def _show_usage_error(error: click.ClickException) -> None:
    """Show the error as all others are, below the usage of the command."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is not None:
        click.echo(f"{ctx.get_usage()}\nTry '{ctx.command_path} --help' for help.\n", err=True)
    message = error.format_message()
    _report_error(message[:1].lower() + message[1:].removesuffix("."), "text")


def _report_error(message: str, form: str, status: int = 0, findings: Sequence[Mapping[str, Any]] = ()) -> None:
    """Show an error in the form of the results."""
    from reconciler.platform_cli.output import error_text

    click.echo(error_text(message, form, status, findings), err=True)


def _find_output_format(words: list[str]) -> str:
    """The format of the output that ``words`` ask for, before they are parsed, which may be what fails."""
    own = words[: _count_own_words(words)]
    for at, word in enumerate(own):
        name, equals, value = word.partition("=")
        if name in ("-o", "--output"):
            return value if equals else next(iter(own[at + 1 :]), "")
        if word.startswith("-o") and len(word) > len("-o"):
            return word.removeprefix("-o")
    return ""


def _count_own_words(words: list[str]) -> int:
    """How many of ``words`` are those of this command: others behind ``--`` belong to one in a container."""
    return words.index("--") if "--" in words else len(words)


def _normalize_words(words: list[str]) -> list[str]:
    """``words`` with their flags in one form."""
    normal: list[str] = []
    own = iter(words[: _count_own_words(words)])
    for word in own:
        if normal and word in _BOOLEANS and normal[-1] in _list_flag_options():
            normal[-1] = _normalize_flag(f"{normal[-1]}={word}")
        else:
            normal.append(_normalize_flag(word))
    return [*normal, *words[_count_own_words(words) :]]


def _normalize_flag(word: str) -> str:
    """``--flag=true`` and ``--flag=false`` as ``--flag`` and ``--no-flag``; scripts write both, and the value apart."""
    name, _, value = word.partition("=")
    if value in _BOOLEANS and name in _list_flag_options():
        return name if value == "true" else f"--no-{name.removeprefix('--')}"
    return word


def _list_flag_options() -> Mapping[str, Option]:
    options = [*COMMON, *(option for row in all_rows() for option in row.options)]
    return {option.names.split("/")[-1]: option for option in options if option.flag}


def _report_write_error(error: OSError) -> int:
    """The exit code where stdout is closed by its reader, or the disk is full."""
    if error.errno not in (errno.EPIPE, errno.ENOSPC):
        return _report_bug(error)
    # Without this the interpreter reports the error again at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.ENOSPC:
        click.echo(f"error: the output could not be written: {error.strerror}", err=True)
    return 1


def _report_bug(error: Exception) -> int:
    from reconciler.bugs import internal_error

    bug = internal_error(error)
    click.echo(f"Calls that led to the error, innermost last:\n{bug.trace}error: {bug}", err=True)
    return 1
