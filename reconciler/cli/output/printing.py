"""What commands print: errors, findings and JSON, coloured where the stream is a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from reconciler.cli.privileges import unreadable_part
from reconciler.errors import ReconcilerError, SourceError
from reconciler.printable import escape_text, printable_lines
from reconciler.terminal.folding import count_columns, fold_text, is_colour_terminal

if TYPE_CHECKING:
    from reconciler.model.finding import Finding
    from reconciler.render.excerpt import Excerpts
    from reconciler.settings import SourceSettings

_MOST_PATHS = 5
"""The most files that a note lists."""


def echo_text(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print ``text`` for people: its long lines are folded where the stream is a terminal."""
    click.echo(fold_text(text, count_columns(sys.stderr if err else sys.stdout)), nl=nl, err=err)


@contextmanager
def note_at_interrupt(text: str) -> Iterator[None]:
    """Print ``text`` on standard error where Ctrl-C ends the block: what goes on without this command."""
    try:
        yield
    except KeyboardInterrupt:
        echo_text(f"\n{text}", err=True)
        raise


@contextmanager
def source_errors_printed(source: str, failed: dict[str, ReconcilerError]) -> Iterator[None]:
    """Print an error or bug of ``source`` and add it to ``failed``, so that the other sources go on."""
    try:
        yield
    except SourceError as error:
        failed[source] = error
        named = str(error).startswith("source ")
        print_error(str(error) if named else f"source {source}: {error}")
    except (ReconcilerError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 - see above
        from reconciler.bugs import internal_error

        failed[source] = internal_error(error)
        print_bug(error, f"source {source}")


def print_bug(error: Exception, part: str = "") -> int:
    """Print a bug of this program on stderr, with the calls that led to it; return the exit code."""
    if file := unreadable_part():
        print_error(
            f"{file}, a part of this program, cannot be read by the user {os.geteuid()}, to whom the state directory "
            "belongs: install the program where that user can read it, such as /opt/reconciler"
        )
        return 1
    from reconciler.bugs import internal_error

    bug = internal_error(error)
    click.echo(f"Calls that led to the error, innermost last:\n{bug.trace}", nl=False, err=True)
    print_error(f"{part}: {bug}" if part else str(bug))
    return 1


def print_error(message: str) -> None:
    """Print an error on stderr, in red on a terminal."""
    from reconciler.render.layout import paint_text

    echo_text(paint_text(f"error: {printable_lines(message)}", "red", is_colour_terminal(sys.stderr)), err=True)


def print_findings(findings: Sequence[Finding], excerpts: Excerpts, stream: TextIO | None = None) -> None:
    """Print ``findings_text`` on ``stream``, else on stdout."""
    from reconciler.render.findings import findings_text

    out = stream or sys.stdout
    if columns := count_columns(out):
        excerpts.narrow(columns)
    text = findings_text(findings, excerpts, colour=is_colour_terminal(out))
    click.echo(fold_text(text, columns), nl=False, file=out)


def echo_json(value: object) -> None:
    """Print ``value`` as indented JSON on stdout."""
    from reconciler.render.layout import as_json

    click.echo(as_json(value).decode())


def note_uncommitted(sources: Iterable[SourceSettings]) -> None:
    """Print on stderr which manifests in the work trees of ``sources`` differ from the commit, and so are not read."""
    # A plan that the daemon answers loads nothing that reads Git, unless there is something to compare.
    with_trees = [source for source in sources if source.local and Path(source.url, ".git").exists()]
    if not with_trees:
        return
    from reconciler.source.work_tree import list_uncommitted

    for source in with_trees:
        if paths := list_uncommitted(source):
            differ, do = ("s differ", "do") if paths[1:] else (" differs", "does")
            listed = ", ".join(paths[:_MOST_PATHS]) + (", …" if paths[_MOST_PATHS:] else "")
            words = f"{len(paths)} file{differ} from the commit and {do} not count: {listed}"
            ways = "commit what is to run, or plan it: reconciler plan --working-tree"
            echo_text(escape_text(f"source {source.name}: {words}; {ways}"), err=True)
