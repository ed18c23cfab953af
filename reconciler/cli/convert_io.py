"""Shared by `convert` and `import`: arguments, manifests and findings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reconciler.cli.output.printing import echo_text
from reconciler.errors import RefusedError, UsageError
from reconciler.input_files import shown_name
from reconciler.render.layout import paint_text
from reconciler.terminal.folding import is_colour_terminal

if TYPE_CHECKING:
    from reconciler.convert.checking import ManifestProblem
    from reconciler.convert.drafts import Draft
    from reconciler.convert.files import ConversionOptions, ConvertedFiles
    from reconciler.model.finding import Finding

_FIELD = re.compile(r"[ ]*(?:- )*([A-Za-z][A-Za-z0-9]{0,60}):")
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


def convert_named_files(files: Sequence[str], options: ConversionOptions) -> ConvertedFiles:
    """What ``files`` (files, directories, ``-``) become, each as what it is. Raises UsageError and RefusedError."""
    from reconciler.convert.compose.project_files import list_variants
    from reconciler.convert.files import convert_files, refuse_others
    from reconciler.convert.quadlet.units import drop_in_directories
    from reconciler.documents.recognition import CONVERTIBLE_HERE, UNIT_SUFFIXES, Form, Recogniser, form_of
    from reconciler.input_files import read_beside, read_files

    options.check()
    read = read_files(files, UNIT_SUFFIXES, Recogniser(CONVERTIBLE_HERE).advice)
    contents = options.without_destinations(read_beside(read, drop_in_directories))
    variants = list_variants([path for path, raw in contents.items() if form_of(path, raw) is Form.COMPOSE])
    contents = {path: raw for path, raw in contents.items() if path in files or path not in variants}
    refuse_others(contents)
    converted = convert_files(contents, options, manifest_problems)
    refuse_nothing(converted.drafts, converted.findings, files)
    return converted


def name_directory(folder: str) -> str:
    """The name of the directory ``folder``, from which a compose project takes its own."""
    return os.path.basename(os.path.abspath(folder or os.curdir))


def refuse_nothing(drafts: Sequence[Draft], findings: Sequence[Finding], files: Sequence[str]) -> None:
    """Raise UsageError if nothing was read in ``files``: a script must not take that for a success."""
    if not drafts and not findings:
        raise UsageError(f"{', '.join(map(shown_name, files))}: there is no document")


def write_drafts(drafts: Sequence[Draft], out: Path | None, force: bool) -> None:
    """Write ``drafts`` to stdout, or each to its file below ``out``.

    Raises RefusedError, before anything is written, where a file exists and ``force`` is false, or two resources
    would share a file; UsageError where a file cannot be written.
    """
    from reconciler.convert.drafts import file_of
    from reconciler.documents.writer import render_document, render_stream

    if out is None:
        click.echo(render_stream(draft.body for draft in drafts), nl=False)
        return
    files = {file_of(draft): render_document(draft.body) for draft in drafts}
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


def manifest_problems(draft: Draft) -> Iterator[ManifestProblem]:
    """The errors that `validate` finds in ``draft`` alone, without values; the fields that an import leaves have notes.

    They are named by their rules, whose texts quote nothing.
    """
    from reconciler.convert.checking import ManifestProblem
    from reconciler.documents.writer import render_document
    from reconciler.manifests.decoder import decode_manifests
    from reconciler.manifests.normalize import ManifestContext
    from reconciler.model.finding import Severity
    from reconciler.rulebook import load_rulebook

    text = render_document(draft.body)
    lines = text.split("\n")
    context = ManifestContext("org", secret_key=b"only looked at, never kept", org_known=False)
    for fault in decode_manifests(text.encode(), context).faults:
        if fault.severity is Severity.ERROR and fault.rule != "unknown-field":
            field = _FIELD.match(lines[fault.line - 1]) if 0 < fault.line <= len(lines) else None
            what = f"{load_rulebook()[fault.rule].what.rstrip('.')} ({fault.rule})"
            yield ManifestProblem(field[1] if field else "", what)


def print_plain_findings(findings: Sequence[Finding]) -> None:
    """Print each finding on stderr, without its source line: any line may hold a secret."""
    on = is_colour_terminal(sys.stderr)
    for finding in findings:
        where = paint_text(f"{finding.path}:{finding.line}:{finding.column}:", "bold", on)
        severity = paint_text(str(finding.severity), _COLOURS[finding.severity], on)
        echo_text(f"{where} {severity}: {finding.message} {paint_text(f'[{finding.rule}]', 'grey', on)}", err=True)
        if finding.suggestion:
            echo_text(f"    {finding.suggestion}", err=True)
