"""Parses revision expressions of users: ``main~1``, ``v1.2``, ``HEAD~3``, an id."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

CHECKOUT = "HEAD"
"""The ``head`` of a repository that a person works in: the checked-out commit."""

_PARTS = re.compile(r"(?P<base>(?:(?!@\{)[^~^:])*)(?P<suffix>.*)", re.DOTALL)
_ID = re.compile(r"[0-9a-f]{40}")
_HEAD = ("HEAD", "@")
_PLACES = ("refs/", "refs/tags/", "refs/heads/", "refs/remotes/")


class Expression(msgspec.Struct, frozen=True):
    """The expression for Git, and the full name of the ``ref`` at its start; "" without one."""

    text: str
    ref: str = ""


def parse_expression(written: str, own: str, head: str, exists: Callable[[str], bool]) -> Expression:
    """``written`` with a full name at its start, so that Git cannot resolve it to anything else.

    ``own`` is the ref or commit of the source; its short name refers to it, even if a tag has the same name. ``HEAD``
    and ``@`` mean the commit ``head``, or ``own`` if that is "". They mean the checked-out commit only for CHECKOUT.
    Other names are refs in Git's lookup order (``exists``), or are left to Git. Raises ValueError for positions in the
    reflog of the checkout.
    """
    parts = _PARTS.fullmatch(written)
    base, suffix = (parts["base"], parts["suffix"]) if parts else (written, "")
    if _ID.fullmatch(base) or head == CHECKOUT == base:
        return Expression(written)
    if not base and suffix.startswith("@{") and head != CHECKOUT:
        raise ValueError("it refers to the reflog of the repository")
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
