"""Regular expressions of log queries: those that both RE2 and Python accept."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from reconciler.errors import ParseError

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
"""Beginnings of what Python accepts and RE2 does not."""


class ExpressionError(ParseError):
    """The text is not an expression; ``at`` is the index of the faulty character."""

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message)
        self.at = at


def compile_expression(text: str) -> re.Pattern[str]:
    """Compile ``text``; classes such as \\w mean ASCII, as in RE2.

    Raises ExpressionError, also for what RE2 does not accept: a query that works here works in other tools.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression has at most {LONGEST:,} characters, and this one {len(text):,}")
    for at, what in _list_unsupported_constructs(text):
        raise ExpressionError(f"expressions have no {what}", at)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(text, re.ASCII)
    except re.error as error:
        raise ExpressionError(f"this is no regular expression: {error.msg}", error.pos or 0) from None
    except (Warning, ValueError, OverflowError, RecursionError) as error:
        raise ExpressionError(f"this is no regular expression: {error}") from None


def _list_unsupported_constructs(text: str) -> Iterator[tuple[int, str]]:
    """The constructs of ``text`` that RE2 does not accept, each with its index."""
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
            # A bracket in the first place is literal.
            at += 2 if text.startswith("^]", at + 1) else int(text.startswith("]", at + 1))
        else:
            yield from ((at, what) for begin, what in _FOREIGN.items() if text.startswith(begin, at))
        at += 1
