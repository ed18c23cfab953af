"""Paths of fields in plans: ``spec.containers[main].image``, ``tags["example.com/team"]``.

A name with other signs than those of words is quoted as JSON does it, so that every path has one meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_ENDING = frozenset('[]"\\')
QUOTED = r'"(?:[^"\\]|\\.)*"'
"""What matches a quoted name."""
_STEP = re.compile(rf"\[(?P<quoted>{QUOTED})\]|\[(?P<item>[^\]]*)\]|\.?(?P<name>[^.\[]+)")


class FieldStep(NamedTuple):
    """One step of a path: a name, which is that of an item of a list if ``is_item``; quoted names may be either."""

    name: str
    is_item: bool
    is_quoted: bool


def member_path(path: str, name: str) -> str:
    """The path of the field ``name`` of the mapping at ``path``."""
    if not name or not _WORD.issuperset(name):
        return f"{path}[{_quote_name(name)}]"
    return f"{path}.{name}" if path else name


def item_path(path: str, name: str) -> str:
    """The path of the item ``name`` of the list at ``path``."""
    return f"{path}[{name if _ENDING.isdisjoint(name) else _quote_name(name)}]"


def steps_of(path: str) -> Iterator[FieldStep]:
    """The steps of a path of ``member_path`` and ``item_path``."""
    for match in _STEP.finditer(path):
        if match["quoted"] is not None:
            yield FieldStep(msgspec.json.decode(match["quoted"], type=str), is_item=True, is_quoted=True)
        else:
            is_item = match["item"] is not None
            yield FieldStep(match["item"] if is_item else match["name"], is_item=is_item, is_quoted=False)


def _quote_name(name: str) -> str:
    return msgspec.json.encode(name).decode()
