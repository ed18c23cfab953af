"""Conditions on lines: a text, an expression, a pattern or addresses, with alternatives."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from reconciler.logql.addresses import AddressRange


class Alternative(msgspec.Struct, frozen=True):
    """What a line has: the text ``value``, or what ``pattern`` finds, or one of ``addresses``."""

    value: str
    pattern: re.Pattern[str] | None = None
    addresses: AddressRange | None = None

    def is_in(self, line: bytes) -> bool:
        """Whether ``line`` has it."""
        if self.pattern is not None:
            return self.pattern.search(as_text(line)) is not None
        if self.addresses is not None:
            return self.addresses.is_in(as_text(line))
        return as_bytes(self.value) in line

    def may_be_in(self, text: bytes) -> bool:
        """Whether a line of ``text`` can have it; False is certain."""
        return self.pattern is not None or self.addresses is not None or as_bytes(self.value) in text


class LineFilter(msgspec.Struct, frozen=True):
    """One condition on lines: ``wanted`` with any of the ``alternatives``, or without all of them."""

    wanted: bool
    alternatives: tuple[Alternative, ...]

    def filter_lines(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """The ``lines`` that match."""
        first, expected = self.alternatives[0], self.wanted
        if len(self.alternatives) > 1:
            return [line for line in lines if self.passes(line)]
        if first.pattern is None and first.addresses is None:
            text = as_bytes(first.value)
            return [line for line in lines if (text in line) is expected]
        return [line for line in lines if first.is_in(line) is expected]

    def passes(self, line: bytes) -> bool:
        """Whether ``line`` matches."""
        return any(alternative.is_in(line) for alternative in self.alternatives) is self.wanted

    def may_match(self, text: bytes) -> bool:
        """Whether a line of ``text`` can match. Cheap, since it splits no lines; False is certain."""
        return not self.wanted or any(alternative.may_be_in(text) for alternative in self.alternatives)


def as_bytes(text: str) -> bytes:
    """``text`` as the bytes of a log; bytes of a command line that are not UTF-8 come back unchanged."""
    return text.encode("utf-8", "surrogateescape")


def as_text(line: bytes) -> str:
    """A line of a log as text for expressions: the inverse of ``as_bytes``."""
    return line.decode("utf-8", "surrogateescape")
