"""What a person writes to name a revision: ``main~1``, ``v1.2``, ``HEAD~3``, an id."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

CHECKOUT = "HEAD"
"""``head`` of a repository that a person works in: what is checked out there."""

_PARTS = re.compile(r"(?P<base>(?:(?!@\{)[^~^:])*)(?P<suffix>.*)", re.DOTALL)
_ID = re.compile(r"[0-9a-f]{40}")
_HEAD = ("HEAD", "@")
_PLACES = ("refs/", "refs/tags/", "refs/heads/", "refs/remotes/")


class Expression(msgspec.Struct, frozen=True):
    """What Git is asked for, and the full name of the ``ref`` that it begins with; "" where it begins with none."""

    text: str
    ref: str = ""


def parse_expression(written: str, own: str, head: str, exists: Callable[[str], bool]) -> Expression:
    """``written`` with its first name made full, so that Git cannot take it for something else.

    ``own`` is the ref or commit of the source: its short name means that, whatever tag has the same name. ``HEAD`` and
    ``@`` mean the commit ``head``, and ``own`` where that is ""; never what is checked out, but for CHECKOUT. Other
    names are refs as Git looks for them (``exists``), or left to Git. Raises ValueError for positions in the log of
    what is checked out.
    """
    parts = _PARTS.fullmatch(written)
    base, suffix = (parts["base"], parts["suffix"]) if parts else (written, "")
    if _ID.fullmatch(base) or head == CHECKOUT == base:
        return Expression(written)
    if not base and suffix.startswith("@{") and head != CHECKOUT:
        raise ValueError("it counts what was checked out in the repository")
    if base in _HEAD:
        base = CHECKOUT if head == CHECKOUT else head or own
        return Expression(base + suffix, base if base.startswith("refs/") else "")
    if base and base in (own, own.partition("/")[2].partition("/")[2]):
        return Expression(own + suffix, own)
    ref = base if base.startswith("refs/") else next((f"{p}{base}" for p in _PLACES if base and exists(p + base)), "")
    return Expression(f"{ref}{suffix}", ref) if ref else Expression(written)


def names_head(written: str) -> bool:
    """Whether ``written`` begins with HEAD or its short form, @."""
    parts = _PARTS.fullmatch(written)
    return parts is not None and parts["base"] in _HEAD
