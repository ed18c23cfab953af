"""Shared by `convert` and `import`: reads files, writes manifests, prints findings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reconciler.cli.output.printing import coloured
from reconciler.documents.limits import LIMITS, read_within, shown_size
from reconciler.errors import RefusedError, UsageError
from reconciler.render.layout import paint

if TYPE_CHECKING:
    from reconciler.convert.drafts import Draft
    from reconciler.model.finding import Finding

_SUFFIXES = (".yaml", ".yml", ".json")
_STDIN = "-"
_COLOURS = {"error": "red", "warning": "yellow", "notice": "blue"}

_Command = TypeVar("_Command", bound=Callable[..., Any])


def files_argument(command: _Command) -> _Command:
    """Add the argument ``FILE…`` to ``command``, passed on as ``files``."""
    return click.argument("files", metavar="FILE…", nargs=-1, required=True)(command)


def out_options(command: _Command) -> _Command:
    """Add the options ``--out DIR`` and ``--force`` to ``command``, passed on under these names."""
    force = click.option("--force", is_flag=True, help="Overwrite existing files.")
    out = click.option(
        "--out",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        help="Write a file for each resource below DIR instead of to standard output.",
    )
    return out(force(command))


def read_files(names: Sequence[str]) -> dict[str, bytes]:
    """Return path → content of the files in ``names``: files, directories with all below them, ``-`` for stdin.

    Raises UsageError where one cannot be read or a directory holds none.
    """
    found: dict[str, bytes] = {}
    for name in names:
        if name == _STDIN:
            found["stdin"] = _from_stdin()
            continue
        paths = [name]
        if os.path.isdir(name):
            paths = sorted(_below(name))
            if not paths:
                raise UsageError(f"{name} has nothing to read: no file below it ends in {', '.join(_SUFFIXES)}")
        found |= {path: _content(path) for path in paths}
    return found


def write_drafts(drafts: Sequence[Draft], out: Path | None, force: bool) -> None:
    """Write ``drafts`` to stdout, or each to its file below ``out``.

    Raises RefusedError, before anything is written, where a file exists and ``force`` is false, or two resources
    would share a file; UsageError where a file cannot be written.
    """
    from reconciler.convert.drafts import file_of
    from reconciler.documents.writer import stream, written

    if out is None:
        click.echo(stream(draft.body for draft in drafts), nl=False)
        return
    files = {file_of(draft): written(draft.body) for draft in drafts}
    if len(files) < len(drafts):
        raise RefusedError("two resources would be written to one file; omit --out")
    there = [path for path in files if (out / path).exists()]
    if there and not force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise RefusedError(f"{out / there[0]}{more} would be overwritten; --force does so")
    try:
        for path, text in files.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}") from error


def print_plain_findings(findings: Sequence[Finding]) -> None:
    """Print each finding on stderr, without its source line: any line may hold a secret."""
    on = coloured(sys.stderr)
    for each in findings:
        where = paint(f"{each.path}:{each.line}:{each.column}:", "bold", on)
        severity = paint(str(each.severity), _COLOURS[each.severity], on)
        click.echo(f"{where} {severity}: {each.message} {paint(f'[{each.rule}]', 'grey', on)}", err=True)
        if each.suggestion:
            click.echo(f"    {each.suggestion}", err=True)


def _below(directory: str) -> Iterator[str]:
    for folder, folders, files in os.walk(directory, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(folder, name) for name in files if name.endswith(_SUFFIXES))


def _content(path: str) -> bytes:
    try:
        return read_within(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _from_stdin() -> bytes:
    content = sys.stdin.buffer.read(LIMITS.file_bytes + 1)
    if len(content) > LIMITS.file_bytes:
        raise UsageError(f"standard input is larger than {shown_size(LIMITS.file_bytes)}, so it is not read")
    return content


def _unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None
