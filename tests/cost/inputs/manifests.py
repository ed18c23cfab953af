"""Every list and mapping of every schema, as large as is asked: the full example of its kind with more of one value."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from reconciler.documents.reader import parse_documents
from reconciler.model.finding import Pointer
from tests.cost.growth import Shape
from tests.fuzz.revisions import checked
from tests.support.mutations import FULL


def growing_values(name: str) -> dict[Pointer, tuple[dict[str, Any], Pointer]]:
    """The lists and mappings of a schema: path without indices → a document that has it, and where.

    The examples have every field; a test of the schemas sees to that.
    """
    growing: dict[Pointer, tuple[dict[str, Any], Pointer]] = {}
    for document in parse_documents((FULL / f"{name}-full.yaml").read_bytes()).documents:
        for at, value in _holders(document.value, ()):
            if value:
                growing.setdefault(tuple("*" if isinstance(step, int) else step for step in at), (document.value, at))
    return growing


def grown(document: dict[str, Any], at: Pointer, count: int) -> dict[str, Any]:
    """``document`` with ``count`` more entries at ``at``, like those that are there, and each another one."""
    whole = copy.deepcopy(document)
    holder: Any = whole
    for step in at:
        holder = holder[step]
    if isinstance(holder, list):
        holder += [_varied(holder[number % len(holder)], number) for number in range(count)]
    else:
        members = list(holder.values())
        holder |= {f"key-{number}": _varied(members[number % len(members)], number) for number in range(count)}
    return whole


def _holders(value: Any, at: Pointer) -> Iterator[tuple[Pointer, Any]]:
    if isinstance(value, dict | list):
        yield at, value
        for step, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _holders(member, (*at, step))


def _varied(value: Any, number: int) -> Any:
    """``value`` with another text at every place; words and numbers that mean something stay."""
    if isinstance(value, dict):
        return {key: _varied(member, number) for key, member in value.items()}
    if isinstance(value, list):
        return [_varied(item, number) for item in value]
    if isinstance(value, str) and value:
        return f"{value}{number}"
    return value


def manifest_shapes(kind: str) -> dict[str, Shape]:
    """Every list and mapping of a kind, checked as `reconciler validate` checks a file."""
    return {
        f"{kind} {'.'.join(map(str, path))}": Shape(
            lambda count, document=document, at=at: json.dumps(grown(document, at, count)).encode(), checked
        )
        for path, (document, at) in growing_values(kind).items()
    }
