"""Fields of objects as the API server sends them; a missing or malformed one reads as empty."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from reconciler.foreign_words import strip_variation
from reconciler.printable import escape_text, truncate_text
from reconciler.times import parse_time

ObjectPart = Mapping[str, Any]
"""An object of the API, or a part of one, as decoded JSON."""

OWN_PREFIX = "reconciler.dev/"
"""Begins the names of all annotations and labels of this program."""
VERSION = f"{OWN_PREFIX}version"
"""The annotation, or label, with the version of the workload."""
GVC_VERSION = f"{OWN_PREFIX}gvc-version"
"""The annotation, or label, with the version of the GVC; a pod without it has the newest one."""

_MOST_TIMES = 10_000
"""Times whose values are remembered."""
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def read_field(part: Any, *path: str) -> Any:
    """The value at ``path``; None if there is none."""
    for name in path:
        if not isinstance(part, dict):
            return None
        part = part.get(name)
    return part


def read_mapping(part: Any, *path: str) -> ObjectPart:
    """The mapping at ``path``; an empty one if there is none."""
    value = read_field(part, *path)
    return value if isinstance(value, dict) else {}


def read_items(part: Any, *path: str) -> tuple[ObjectPart, ...]:
    """The mappings in the list at ``path``."""
    value = read_field(part, *path)
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def read_text(part: Any, *path: str) -> str:
    """The text at ``path``; "" if there is none."""
    value = read_field(part, *path)
    return value if isinstance(value, str) else ""


def read_number(part: Any, *path: str, default: int = 0) -> int:
    """The whole number at ``path``."""
    value = read_field(part, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def read_seconds(part: Any, *path: str) -> float:
    """The time at ``path`` in seconds since the epoch; 0 if there is none."""
    return _parse_seconds(text) if (text := read_text(part, *path)) else 0.0


@lru_cache(_MOST_TIMES)
def _parse_seconds(text: str) -> float:
    """A time in seconds since the epoch, 0 for what is none: each observation reads the same times again."""
    with suppress(ValueError, OverflowError):
        return parse_time(text)
    return 0.0


def read_message(part: Any, *path: str) -> str:
    """The text at ``path`` on one line, shortened."""
    return shorten_text(read_text(part, *path))


def shorten_text(text: str) -> str:
    """``text`` of a cluster on one line, shortened, safe to show, and without what each try has anew."""
    return truncate_text(escape_text(strip_variation(" ".join(text.split()))))


def name_of(part: ObjectPart) -> str:
    """The name of an object."""
    return read_text(part, "metadata", "name")


def read_version(part: ObjectPart, name: str = VERSION) -> int:
    """The number in an annotation or a label of an object or template; 0 if there is none."""
    text = read_text(part, "metadata", "annotations", name) or read_text(part, "metadata", "labels", name)
    return int(text) if text.isascii() and text.isdecimal() else 0


def read_marks(part: ObjectPart) -> dict[str, str]:
    """The labels and annotations of an object or template that this program sets."""
    marks = {**read_mapping(part, "metadata", "labels"), **read_mapping(part, "metadata", "annotations")}
    return {name: str(value) for name, value in marks.items() if str(name).startswith(OWN_PREFIX)}


def find_condition(part: ObjectPart, condition: str) -> ObjectPart:
    """The condition of the type ``condition`` in the status of an object; empty if it has none."""
    return next((item for item in read_items(part, "status", "conditions") if item.get("type") == condition), {})


def is_true(condition: ObjectPart) -> bool:
    """Whether a condition is true."""
    return condition.get("status") == "True"


def is_false(condition: ObjectPart) -> bool:
    """Whether a condition is false, which one that is missing is not."""
    return condition.get("status") == "False"


def parse_quantity(text: Any) -> float:
    """A quantity such as ``500m``, ``20Gi``, ``1e3`` or ``0.5`` as a number; 0 for what is none."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    if not isinstance(text, str):
        return 0.0
    for units in (_BINARY, _DECIMAL):
        for unit, factor in units.items():
            number = text.removesuffix(unit)
            if unit and number != text and _is_number(number):
                return float(number) * factor
    return float(text) if _is_number(text) else 0.0


def _is_number(text: str) -> bool:
    """Whether ``text`` is a decimal number, with an exponent or not: ``nan`` and ``inf`` are none."""
    if not text or not set(text) <= set("+-.0123456789eE"):
        return False
    try:
        return abs(float(text)) < 1e30
    except ValueError:
        return False
