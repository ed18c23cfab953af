"""Drafts of manifests: their head, their apply order, and a file for each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from reconciler.convert.notes import ConversionNote
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.finding import Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.table import TABLE
from reconciler.model.platform import TAG_PREFIX

Body = dict[str, Any]

_MOST_TAGS = 50
_ODD = re.compile(r"[^-._@+:a-zA-Z0-9]")


class DraftPlace(NamedTuple):
    """A value in a document, which has a position in its file."""

    path: str
    position: int
    at: Pointer


class Draft(msgspec.Struct, frozen=True):
    """A manifest to be written; ``gvc`` is "" for a resource of the org. ``place`` is what it is made of, if known."""

    kind: Kind
    gvc: str
    name: str
    body: Body
    place: DraftPlace | None = None


class Converted(msgspec.Struct, frozen=True):
    """The manifests in apply order, and notes about them."""

    drafts: list[Draft]
    remarks: list[ConversionNote]


def in_order(drafts: Iterable[Draft]) -> list[Draft]:
    """``drafts`` in apply order, by GVC and name within a kind."""
    return sorted(drafts, key=lambda one: (TABLE[one.kind].rank, one.kind, one.gvc, one.name))


def file_of(draft: Draft) -> str:
    """The file for ``draft`` in a tidy tree: ``shop/gvc.yaml``, ``shop/workload/api.yaml``, ``secret/db.yaml``.

    The path stays below its root, whatever the name contains.
    """
    if draft.kind is Kind.GVC:
        return f"{_sanitize_name(draft.name)}/gvc.yaml"
    folders = [_sanitize_name(draft.gvc)] if draft.gvc else []
    return "/".join([*folders, str(draft.kind), f"{_sanitize_name(draft.name)}.yaml"])


def make_draft(kind: Kind, name: str, gvc: str, origin: TrackedValue | None, rest: Body) -> Draft:
    """The manifest with its fields in the usual order; tags are those of the resource or template ``origin``."""
    body: Body = {"kind": str(kind), "name": name}
    if gvc:
        body["gvc"] = gvc
    if origin is not None and (tags := _collect_tags(origin)):
        body["tags"] = tags
    position = DraftPlace(origin.sheet.path, origin.sheet.index, origin.at) if origin is not None else None
    return Draft(kind, gvc, name, body | rest, position)


def without_empty(body: Body) -> Body:
    """``body`` without empty fields."""
    return {name: value for name, value in body.items() if value not in (None, "", [], {})}


def _collect_tags(origin: TrackedValue) -> dict[str, str]:
    """The labels of ``origin`` that can be tags (docs/platform/fields.md#tags)."""
    labels = origin["metadata"]["labels"]
    labels.sheet.carried.update((*labels.at, name) for name, _ in labels.fields())
    tags = {name: part for name, part in labels.fields() if not name.startswith(TAG_PREFIX)}
    for name, part in labels.fields():
        if name not in tags:
            part.add_note(
                "convert-left-out", f"the label `{name}` would be a built-in tag and is left out", on_key=True
            )
    if len(tags) > _MOST_TAGS:
        labels.add_note(
            "convert-left-out", f"only the first {_MOST_TAGS} of {len(tags)} labels become tags", on_key=True
        )
    return {name: part.text() for name, part in list(tags.items())[:_MOST_TAGS]}


def _sanitize_name(name: str) -> str:
    fit = _ODD.sub("_", name)
    return f"_{fit[1:]}" if fit.startswith(".") else fit or "_"
