"""Regular expressions as log queries have them: those of RE2 that this program's own matcher takes too."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

LONGEST = 1_000
"""Characters of an expression."""

_FOREIGN = {
    "(?=": "looking ahead",
    "(?!": "looking ahead",
    "(?<=": "looking behind",
    "(?<!": "looking behind",
    "(?P=": "references back",
    "(?P>": "references back",
    "(?(": "conditions",
    "(?>": "atomic groups",
    "(?#": "comments",
    "*+": "possessive repeats",
    "++": "possessive repeats",
    "?+": "possessive repeats",
    "}+": "possessive repeats",
}
"""What Python's expressions begin so, and those of RE2 never."""


class ExpressionError(ValueError):
    """The text is no expression; ``at`` is the character at fault, from 0."""

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message)
        self.at = at


def compiled(text: str) -> re.Pattern[str]:
    """``text`` ready to match, classes such as \\w meaning ASCII as in RE2.

    Raises ExpressionError; also for what RE2 does not have, so that a query that works here works elsewhere.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression has at most {LONGEST:,} characters, and this one {len(text):,}")
    for at, what in _foreign(text):
        raise ExpressionError(f"expressions have no {what}", at)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(text, re.ASCII)
    except re.error as error:
        raise ExpressionError(f"this is no regular expression: {error.msg}", error.pos or 0) from None
    except (Warning, ValueError, OverflowError, RecursionError) as error:
        raise ExpressionError(f"this is no regular expression: {error}") from None


def _foreign(text: str) -> Iterator[tuple[int, str]]:
    """What ``text`` has that RE2 has not, and where."""
    at, inside = 0, False
    while at < len(text):
        character = text[at]
        if character == "\\":
            if not inside and text[at + 1 : at + 2] in {*"123456789"}:
                yield at, "references back"
            at += 1
        elif inside:
            inside = character != "]"
        elif character == "[":
            inside = True
            # A bracket that comes first stands for itself.
            at += 2 if text.startswith("^]", at + 1) else int(text.startswith("]", at + 1))
        else:
            yield from ((at, what) for begin, what in _FOREIGN.items() if text.startswith(begin, at))
        at += 1
