"""What somebody probably meant."""

from __future__ import annotations

from collections.abc import Iterable

LIKE = 0.6
"""How alike two words are, from 0 to 1, that one may be taken for the other."""


def closest(word: str, known: Iterable[str], enough: float = LIKE) -> str:
    """The one of ``known`` that is most like ``word``, "" where none is like it ``enough``."""
    from difflib import get_close_matches  # 3 ms of every command, and only mistakes need it

    return next(iter(get_close_matches(word, list(known), 1, enough)), "")
