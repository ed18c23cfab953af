"""How text is shown."""

from __future__ import annotations

from typing import NamedTuple


class TextStyle(NamedTuple):
    """With ``colour``; with all columns and whole messages where it is ``wide``; with ``headings`` above columns."""

    colour: bool = False
    wide: bool = False
    headings: bool = True
