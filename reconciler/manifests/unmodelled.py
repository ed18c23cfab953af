"""Fields of the platform that have no effect here: known, so that manifests with them stay valid.

The schemas mark each with ``x-unmodelled``, which names what the platform does with it, and ``x-inert``, the values
that do nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from reconciler.manifests.field_schema import FieldSchema, is_inert, shape_of

_EACH = 0
"""The step to the entries of a list in a path."""


class UnmodelledField(NamedTuple):
    """A field of a document. ``meaning`` completes "the platform …"; with an ``inert`` value it does nothing there."""

    path: tuple[str | int, ...]
    meaning: str
    inert: bool

    def __str__(self) -> str:
        return ".".join(step for step in self.path if isinstance(step, str))


def find_unmodelled(kind: str, value: Mapping[str, Any]) -> Iterator[UnmodelledField]:
    """The fields of ``value``, a document of ``kind``, that have no effect here; it may have faults."""
    for path, shape in unmodelled_paths(kind):
        for at, found in _at(value, path, ()):
            yield UnmodelledField(at, shape.unmodelled, is_inert(shape, found))


def sentences(kind: str, value: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each field of ``value``, a manifest in normal form, that would have an effect on the platform."""
    found = {str(each): each.meaning for each in find_unmodelled(kind, value) if not each.inert}
    return tuple(f"{name} has no effect here; the platform {meaning}." for name, meaning in found.items())


def recorded_sentences(kind: str, body: bytes) -> tuple[str, ...]:
    """As ``sentences``, of a recorded ``body``; most have no such field, and are not decoded."""
    return sentences(kind, msgspec.json.decode(body)) if _mention(kind).search(body) else ()


@cache
def _mention(kind: str) -> re.Pattern[bytes]:
    """What finds the name of an unmodelled field in JSON."""
    names = sorted({str(path[-1]) for path, _ in unmodelled_paths(kind)})
    return re.compile(b'"(?:' + b"|".join(map(str.encode, names)) + b')":' if names else rb"(?!)")


@cache
def unmodelled_paths(kind: str) -> tuple[tuple[tuple[str | int, ...], FieldSchema], ...]:
    """The path of each unmodelled field in documents of ``kind``, 0 for the entries of a list."""
    return tuple(_paths(shape_of(kind), ()))


def _paths(shape: FieldSchema, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], FieldSchema]]:
    for name, child in shape.properties.items():
        if child.unmodelled:
            yield (*path, name), child
        else:
            yield from _paths(child, (*path, name))
    if shape.items is not None:
        yield from _paths(shape.items, (*path, _EACH))


def _at(
    value: Any, path: Sequence[str | int], done: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The places of ``path`` in ``value``, each with what is there."""
    if not path:
        yield done, value
        return
    step, *rest = path
    if step == _EACH:
        for index, each in enumerate(value if isinstance(value, list) else ()):
            yield from _at(each, rest, (*done, index))
    elif isinstance(value, Mapping) and step in value:
        yield from _at(value[step], rest, (*done, step))
