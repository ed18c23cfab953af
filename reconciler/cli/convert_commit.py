"""`reconciler convert --commit`: writes manifests into the repository of a person, and commits them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.convert_io import convert_named_files, print_plain_findings, write_drafts
from reconciler.cli.git_commands import commit_files, find_work_tree, refuse_staged
from reconciler.cli.output.printing import echo_text
from reconciler.errors import RefusedError, UsageError
from reconciler.input_files import STDIN, shown_name

if TYPE_CHECKING:
    from reconciler.convert.drafts import Draft
    from reconciler.convert.files import ConversionOptions

_LONGEST_SUBJECT = 60
_MOST_NAMED = 3
"""The most secrets that a message names."""


def commit_manifests(
    files: Sequence[str], options: ConversionOptions, out: Path, *, force: bool, plain_secrets: bool
) -> int:
    """Convert ``files``, write the manifests below ``out`` and commit them; returns the exit code.

    What is converted is listed in `.reconcilerignore`, where it would be read as a manifest. Raises RefusedError where
    something is staged already, or where a secret would be committed in plain text without ``plain_secrets``.
    """
    from reconciler.convert.drafts import file_of
    from reconciler.model.finding import has_errors

    work_tree = find_work_tree(_find_existing(out.absolute()))
    refuse_staged(work_tree)
    converted = convert_named_files(files, options)
    print_plain_findings(converted.findings)
    if has_errors(converted.findings):
        return 1
    if not plain_secrets:
        _refuse_plain_secrets(converted.drafts)
    write_drafts(converted.drafts, out, force)
    paths = [os.path.relpath((out / file_of(draft)).resolve(), work_tree) for draft in converted.drafts]
    paths += _ignore_converted(work_tree, files, out)
    commit = commit_files(work_tree, paths, make_subject(files))
    if not commit:
        click.echo(f"nothing differs from what is committed in {work_tree}")
        return 0
    echo_text(f"{len(converted.drafts)} manifests below {out} are committed as {commit[:12]}: {make_subject(files)}")
    return 0


def make_subject(files: Sequence[str]) -> str:
    """The subject of a commit of what ``files`` became."""
    first = os.path.basename(os.path.abspath(files[0])) if files[0] != STDIN else shown_name(files[0])
    more = f" and {len(files) - 1} more" if files[1:] else ""
    subject = f"Convert {first}{more} to manifests"
    return subject if len(subject) <= _LONGEST_SUBJECT and first.isprintable() else "Convert files to manifests"


def _find_existing(path: Path) -> Path:
    """``path``, or the nearest directory above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _refuse_plain_secrets(drafts: Sequence[Draft]) -> None:
    from reconciler.manifests.encrypted import is_plain_text
    from reconciler.model.key import Kind

    names = [draft.name for draft in drafts if draft.kind is Kind.SECRET and is_plain_text(draft.body, None)]
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if names[_MOST_NAMED:] else ""
        raise RefusedError(
            f"the commit would have secrets in plain text: {', '.join(names[:_MOST_NAMED])}{more}; write the files "
            "with --out DIR, encrypt them with `reconciler secret encrypt FILE --in-place` and commit those, or add "
            "--plain-secrets"
        )


def _ignore_converted(work_tree: Path, files: Sequence[str], out: Path) -> list[str]:
    """List what was converted in the ignore file of ``work_tree``; returns the changed paths. Raises UsageError."""
    from reconciler.source.file_filter import IGNORE_FILE, FileFilter

    file = work_tree / IGNORE_FILE
    try:
        before = file.read_bytes() if file.exists() else b""
        selection = FileFilter(ignored=before)
        patterns = []
        for path in _list_inside(work_tree, files, out):
            probe = f"{path}a.yaml" if path.endswith("/") else path
            if selection.matches(probe):
                patterns.append(f"/{path}\n")
        if not patterns:
            return []
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        file.write_bytes(before + gap + "".join(patterns).encode())
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}") from None
    return [IGNORE_FILE]


def _list_inside(work_tree: Path, files: Sequence[str], out: Path) -> Iterator[str]:
    """What of ``files`` is in ``work_tree``, relative to it; a directory ends in a slash, unless it has ``out`` too."""
    for name in files:
        path = Path(name).resolve()
        if name == STDIN or path == work_tree or not path.is_relative_to(work_tree):
            continue
        inside = path.relative_to(work_tree).as_posix()
        if not path.is_dir():
            yield inside
        elif not out.resolve().is_relative_to(path):
            yield f"{inside}/"
