"""Variables in the texts of compose files: `$NAME`, and `${NAME}` with its forms for defaults and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from reconciler.errors import ParseError

MOST_NESTED = 20
"""How deep a default may hold other variables."""
MOST_CHARACTERS = 1 << 20
"""The longest text that one value may become: a variable in its own default could double it again and again."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORM = re.compile(r":?[-?+]")


class InterpolationError(ParseError):
    """A text has a variable that is written wrongly, or is required and missing."""


class Interpolated(NamedTuple):
    """A text with its variables replaced, and the ``unset`` ones, which count as empty."""

    text: str
    unset: tuple[str, ...]


def interpolate_text(text: str, environ: Mapping[str, str]) -> Interpolated:
    """Replace the variables of ``text``; ``$$`` is a dollar sign, and so is one before no name.

    Raises InterpolationError.
    """
    if "$" not in text:
        return Interpolated(text, ())
    interpolation = _Interpolation(text, environ)
    return Interpolated(interpolation.replace(0), tuple(dict.fromkeys(interpolation.unset)))


class _Interpolation:
    """One pass over a text. ``wanted`` is false inside of a default that is not used: it can raise no error then."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self._text = text
        self._environ = environ
        self._at = 0
        self._wanted = True
        self.unset: list[str] = []

    def replace(self, depth: int) -> str:
        """The text from here to its end, or inside of braces to the closing one."""
        if depth > MOST_NESTED:
            raise InterpolationError(f"variables are nested more than {MOST_NESTED} deep")
        parts, length, escaped = [], 0, 0
        while self._at < len(self._text):
            character = self._text[self._at]
            if depth and character == "}":
                if not escaped:
                    break
                escaped -= 1
            # The brace behind an escaped dollar sign has a closing one too, which does not end the default.
            escaped += self._text.startswith("$${", self._at)
            self._at += 1
            parts.append(self._variable(depth) if character == "$" else character)
            # Counted before they are joined: a thousand long variables are more than the machine's memory.
            length += len(parts[-1])
            if length > MOST_CHARACTERS:
                raise InterpolationError(f"the text becomes longer than {MOST_CHARACTERS} characters")
        return "".join(parts)

    def _variable(self, depth: int) -> str:
        """What a dollar sign and what follows become; alone it stays, as in a regular expression or `$(date)`."""
        if self._text.startswith("$", self._at):
            self._at += 1
            return "$"
        braces = self._text.startswith("{", self._at)
        self._at += braces
        name = _NAME.match(self._text, self._at)
        if name is None and not braces:
            return "$"
        if name is None:
            raise InterpolationError("a variable is $NAME or ${NAME}; a dollar sign before a brace is $$")
        self._at = name.end()
        if not braces:
            return self._value(name[0])
        form = _FORM.match(self._text, self._at)
        text = self._resolve_form(name[0], form[0], depth) if form else self._value(name[0])
        if not self._text.startswith("}", self._at):
            raise InterpolationError(f"${{{name[0]} has no closing brace, or a form that does not exist")
        self._at += 1
        return text

    def _resolve_form(self, name: str, form: str, depth: int) -> str:
        """The value of ``${NAME:-WORD}`` and its relatives; with a colon an empty variable counts as missing."""
        self._at += len(form)
        value = self._environ.get(name)
        missing = value is None or (form[0] == ":" and not value)
        uses_word = missing != form.endswith("+")
        outer = self._wanted
        self._wanted = outer and uses_word
        begin = self._at
        word = self.replace(depth + 1)
        self._wanted = outer
        if form.endswith("?") and missing and outer:
            # As it is written: the value of another variable may be a secret.
            written = self._text[begin : self._at]
            raise InterpolationError(f"the variable {name} is required" + (f": {written}" if written else ""))
        if form.endswith("+"):
            return "" if missing else word
        return word if missing else str(value)

    def _value(self, name: str) -> str:
        text = self._environ.get(name)
        if text is None and self._wanted:
            self.unset.append(name)
        return text or ""
