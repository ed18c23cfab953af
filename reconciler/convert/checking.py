"""Checks what a conversion makes before it is written, so that none ends well with manifests that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from reconciler.convert.drafts import Draft
from reconciler.convert.notes import ConversionNote
from reconciler.documents.schema.validator import get_checker
from reconciler.iteration import track_items

_MOST_OF_A_DRAFT = 5
"""The most notes about one manifest; further ones mostly have the same cause."""


class ManifestProblem(NamedTuple):
    """A field of a manifest, or "", and what it breaks; neither has a value, which may be a secret."""

    field: str
    what: str


Check = Callable[[Draft], Iterable[ManifestProblem]]
"""What finds the problems of a manifest."""


def check_drafts(drafts: Sequence[Draft], first: str, check: Check, *, imported: bool = False) -> list[ConversionNote]:
    """A note for each problem of ``drafts``, at what the manifest is made of, else in the file ``first``."""
    tracked = track_items(drafts, "checking manifests", len(drafts))
    return [note for draft in tracked for note in _list_draft_notes(draft, first, check(draft), imported=imported)]


def schema_problems(draft: Draft) -> Iterator[ManifestProblem]:
    """The fields of ``draft`` that do not fit the schema of its kind: all that a client knows."""
    for breach in get_checker(str(draft.kind)).breaches(draft.body):
        path = [str(step) for step in breach.path if isinstance(step, str)]
        yield ManifestProblem(path[-1] if path else "", "the schema of the kind does not take it")


def _list_draft_notes(
    draft: Draft, first: str, problems: Iterable[ManifestProblem], *, imported: bool
) -> Iterator[ConversionNote]:
    path, position, at = draft.place or (first, 0, ())
    rule = "import-invalid" if imported else "convert-invalid"
    for field, what in [*dict.fromkeys(problems)][:_MOST_OF_A_DRAFT]:
        where = f" for `{field}`" if field else ""
        message = f"the {draft.kind} {draft.name} would be refused{where}: {what}"
        yield ConversionNote(rule, path, position, at, message, "change it here, or leave it out", on_key=True)
