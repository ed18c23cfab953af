"""A field of a kind by its path, as its schema describes it."""

from __future__ import annotations

import re
from itertools import accumulate

from reconciler.documents.schema.fields import Field, list_fields
from reconciler.documents.schema.loader import load_schema
from reconciler.errors import NotFoundError
from reconciler.model.key import KINDS
from reconciler.model.target import find_kind
from reconciler.queries.existence import did_you_mean

_MARKS = re.compile(r"\[[^\]]*\]")
"""The index of an entry, which a path may have and need not."""


def is_field_path(text: str) -> bool:
    """Whether ``text`` begins with a kind, and so is the path of a field: ``workload.spec``."""
    return find_kind(text.partition(".")[0]) in KINDS


def find_field(text: str) -> Field:
    """The field with the path ``text``, such as ``workload.spec.containers.image``, or a kind.

    Raises NotFoundError with the nearest name.
    """
    first, *names = _MARKS.sub("", text).strip(".").split(".")
    kind = find_kind(first)
    schema = load_schema(kind)
    top = Field(kind, schema, False, schema.get("x-change", "in-place"))
    *_, found = accumulate(names, _find_below, initial=top)
    return found


def _find_below(holder: Field, name: str) -> Field:
    below = {field.path.rpartition(".")[2]: field for field in list_fields(holder)}
    if name not in below:
        there = f"; there are: {', '.join(below)}" if below else "; it has no fields"
        raise NotFoundError(f"{holder.path} has no field {name!r}{did_you_mean(name, below) or there}")
    return below[name]
