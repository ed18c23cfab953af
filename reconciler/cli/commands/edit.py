"""`reconciler edit`: change a manifest in Git in an editor."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.manifest_changes import ChangeParameters, ManifestChange, change_options, open_change
from reconciler.cli.target_arguments import TargetCommand, key_argument
from reconciler.errors import ReconcilerError, RefusedError

if TYPE_CHECKING:
    from reconciler.changes.text import DocumentBody
    from reconciler.changes.write import RevisionRefused
    from reconciler.model.key import Key

NOTE = "# reconciler: "
"""How the lines begin that are above a manifest in the editor, and are removed."""


@click.command(cls=TargetCommand, epilog="Example: EDITOR=nano reconciler edit workload/shop/api")
@key_argument()
@change_options
def command(key: Key, **parameters: Any) -> int:
    """Open the manifest of KEY, as it is in Git, in an editor, and commit what it becomes.

    The whole tree that results is checked first; a text with errors is opened again, with what is wrong above it. The
    text is committed as it is written, with its comments. The plan is shown. An empty text, or an unchanged one,
    changes nothing. The editor is $VISUAL, $EDITOR or vi.
    """
    from reconciler.cli.editor import open_text_editor

    with open_change(key, ChangeParameters(**parameters)) as change:
        body = change.manifest.read()
        ending = ".json" if body.text.lstrip().startswith("{") else ".yaml"
        with open_text_editor(f"{key.kind}-{key.name}{ending}".replace(":", "_")) as edit_text:
            return _Editing(change, body, edit_text).run()


class _Editing:
    """The manifest in an editor, again and again until it can be committed."""

    def __init__(self, change: ManifestChange, body: DocumentBody, edit_text: Callable[[str], str]) -> None:
        self._change = change
        self._body = body
        self._edit_text = edit_text

    def run(self) -> int:
        """Edit the manifest and commit it; returns the exit code. Raises ReconcilerError."""
        manifest, text = self._change.manifest, self._body.text
        notes = [f"{manifest.key} in {manifest.path} of the source {manifest.pipeline.name}"]
        is_refused = False
        while True:
            after = self._open_editor(notes, text)
            if not after.strip() or after == self._body.text:
                self._change.show(None)
                return 0
            if is_refused and after == text:
                raise self._save_and_refuse(text, "; ".join(notes))
            text = after
            faults = self._commit(text)
            if faults is None:
                return 0
            notes, is_refused = faults, True

    def _open_editor(self, notes: Sequence[str], text: str) -> str:
        """What becomes of ``text`` in the editor, without notes above it. It ends as the document in Git does."""
        lines = self._edit_text(f"{_format_notes(notes)}{text}").splitlines(keepends=True)
        while lines and lines[0].startswith(NOTE.rstrip()):
            del lines[0]
        after = "".join(lines)
        return after if after.endswith("\n") or not self._body.text.endswith("\n") else f"{after}\n"

    def _commit(self, text: str) -> list[str] | None:
        """Commit ``text``; None once that is done, else what is wrong with it. Raises ReconcilerError."""
        from reconciler.changes.manifests import parse_manifest
        from reconciler.changes.write import RevisionRefused

        manifest = self._change.manifest
        try:
            parse_manifest(manifest.key, text)
        except RefusedError as error:
            return [str(error)]
        try:
            self._change.show(manifest.rewrite(self._body.text, text, self._change.options))
        except RevisionRefused as refused:
            return [*self._errors(refused, text)]
        except ReconcilerError as error:
            raise self._save_and_refuse(text, str(error)) from None
        return None

    def _errors(self, refused: RevisionRefused, text: str) -> Iterator[str]:
        """The errors of a refused ``text``, with the lines that they have in the editor."""
        from reconciler.render.findings import format_place

        path, lines_before = self._change.manifest.path, self._body.lines_before
        lines = range(lines_before + 1, lines_before + text.count("\n") + 2)
        for error in refused.errors:
            is_here = error.path == path and error.line in lines
            where = f"line {error.line - lines_before + len(refused.errors)}" if is_here else format_place(error)
            hint = f"; {error.suggestion}" if error.suggestion else ""
            yield f"{where}: {error.message}{hint} [{error.rule}]"

    def _save_and_refuse(self, text: str, reason: str) -> RefusedError:
        """The error that ends the change for a ``reason``. The text stays in a file, unless it may be secret."""
        from reconciler.model.key import Kind

        key = self._change.manifest.key
        if key.kind is Kind.SECRET:
            return RefusedError(f"{key} is not changed: {reason}")
        descriptor, name = tempfile.mkstemp(prefix=f"{key.kind}-", suffix=".yaml")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return RefusedError(f"{key} is not changed: {reason}; the text is still in {name}")


def _format_notes(notes: Sequence[str]) -> str:
    """``notes`` as lines above a text."""
    from reconciler.printable import escape_text

    return "".join(f"{NOTE}{escape_text(note)}\n" for note in notes)
