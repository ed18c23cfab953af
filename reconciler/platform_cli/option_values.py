"""What options of commands have: pairs of keys and values, and whole numbers."""

from __future__ import annotations

from reconciler.errors import UsageError


def parse_pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """``KEY=VALUE`` texts of ``option`` as a mapping. Raises UsageError."""
    mapping = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"{option} {text}: write KEY=VALUE")
        mapping[key] = value
    return mapping


def whole_number(text: str, option: str) -> int:
    """The number that ``option`` has. Raises UsageError."""
    if not text.isdecimal() or not text.isascii():
        raise UsageError(f"{option} {text}: write a whole number")
    return int(text)
