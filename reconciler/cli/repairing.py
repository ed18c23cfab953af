"""`reconciler validate --fix`: repairs files, and shows what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.editor import replace_file
from reconciler.documents.redaction import visible_lines
from reconciler.input_files import read_file
from reconciler.model.revision import YAML_SUFFIXES
from reconciler.printable import escape_text
from reconciler.render.excerpt import HIDDEN
from reconciler.render.layout import paint_text
from reconciler.terminal.folding import is_colour_terminal

if TYPE_CHECKING:
    from reconciler.manifests.normalize import ManifestContext


def repair_files(paths: Sequence[Path], dialect: ManifestContext) -> None:
    """Repair the manifests in YAML at ``paths``, and print the changed lines on stderr. Raises UsageError.

    A file that another program changes meanwhile is refused.
    """
    import sys

    from reconciler.review.repairs import repair_text

    colour = is_colour_terminal(sys.stderr)
    for file in _list_files(paths):
        raw = read_file(file)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            continue
        repaired = repair_text(text, dialect)
        if repaired == text:
            continue
        replace_file(file, raw, repaired.encode())
        click.echo(paint_text(f"repaired {escape_text(str(file))}", "bold", colour), err=True)
        for line in list_changed_lines(text, repaired):
            click.echo(paint_text(f"  {line}", "green" if line.startswith("+") else "red", colour), err=True)


def list_changed_lines(before: str, after: str) -> Iterator[str]:
    """The lines that differ, with ``-`` and ``+`` before them; those that may be part of a secret are hidden."""
    old, new = _list_visible_lines(before), _list_visible_lines(after)
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for what, begin, end, begin_after, end_after in matcher.get_opcodes():
        if what != "equal":
            yield from (f"- {line}" for line in old[begin:end])
            yield from (f"+ {line}" for line in new[begin_after:end_after])


def _list_visible_lines(text: str) -> list[str]:
    return [HIDDEN if line is None else escape_text(line.rstrip("\r\n")) for line in visible_lines(text.encode())]


def _list_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files in YAML at ``paths``, each once, as a check reads them: without hidden and ignored ones."""
    from reconciler.review.folder import list_manifest_paths

    seen: set[Path] = set()
    for path in paths:
        files = (path / name for name in sorted(list_manifest_paths(path))) if path.is_dir() else [path]
        for file in files:
            place = file.resolve()
            if file.name.endswith(YAML_SUFFIXES) and not file.is_symlink() and place not in seen:
                seen.add(place)
                yield file
