"""Explicit tags: those of YAML's core schema and no others."""

from __future__ import annotations

from reconciler.documents.scalars import Problem, Scalar, plain

_CORE = "tag:yaml.org,2002:"
_SCALARS = {"int": int, "float": float, "bool": bool, "null": type(None)}
_UNKNOWN = Problem(
    # The tag is not shown: it may be a password that begins with an exclamation mark.
    "unknown-tag",
    "this tag is not one of YAML's core schema",
    "remove the tag, or put text that begins with ! in quotes",
)
_KINDS = _SCALARS.keys() | {"str", "map", "seq"}


def tagged(tag: str, text: str) -> Scalar | Problem:
    """The value of a scalar under ``tag``, given in its long form; ``!`` alone makes it text."""
    kind = _kind(tag)
    if kind == "str":
        return text
    if kind not in _KINDS:
        return _UNKNOWN
    if kind not in _SCALARS:
        return _mismatch(kind)
    value = plain(text)
    if kind == "float" and type(value) is int:
        return float(value)
    return value if type(value) in (_SCALARS[kind], Problem) else _mismatch(kind)


def collection(tag: str, kind: str) -> Problem | None:
    """What is wrong with ``tag`` on a collection of ``kind``, which is ``map`` or ``seq``."""
    given = _kind(tag)
    if tag == "!" or given == kind:
        return None
    return _mismatch(given) if given in _KINDS else _UNKNOWN


def _kind(tag: str) -> str:
    return "str" if tag == "!" else tag.removeprefix(_CORE) if tag.startswith(_CORE) else ""


def _mismatch(kind: str) -> Problem:
    return Problem("tag-mismatch", f"the tag !!{kind} does not fit this value", "remove the tag, or correct the value")
