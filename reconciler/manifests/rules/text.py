"""Quotes values of manifests: short, printable, and between backticks."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.printable import make_visible_text

QUOTED = 60
"""The number of characters of a value that are shown."""
LISTED = 6
"""The number of names of a list that are shown."""


def quote_text(text: str) -> str:
    """`` `text` ``, cut after 60 characters, with unsafe and unprintable ones as escapes."""
    return f"`{make_visible_text(text if len(text) <= QUOTED else text[: QUOTED - 1] + '…')}`"


def path_of(names: Iterable[str]) -> str:
    """``A → B → C``, for a long list only the beginning and the end."""
    listed = list(names)
    if len(listed) > LISTED:
        listed = [*listed[: LISTED - 2], "…", listed[-1]]
    return " → ".join(quote_text(name) if name != "…" else name for name in listed)
