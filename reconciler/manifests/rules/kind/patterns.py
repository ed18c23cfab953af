"""Checks the syntax of regular expressions that all dialects share."""

from __future__ import annotations

_REPEATS = frozenset("*+?")
_NOTHING = frozenset("(|")
_LONGEST_CLASS = 20
"""The longest name of a class such as [:alpha:], in characters."""


def fault_in(pattern: str) -> str:
    """The fault of ``pattern`` in every dialect of regular expressions; "" for none. Its time is linear."""
    open_groups = 0
    at = 0
    repeatable = False
    while at < len(pattern):
        character = pattern[at]
        if character == "[":
            at = end_of_class(pattern, at)
            if not at:
                return "a `[` is never closed"
        elif character == "\\":
            at = end_of_escape(pattern, at + 1)
            if at == len(pattern):
                return "it ends with a lone backslash"
        elif character == ")":
            open_groups -= 1
            if open_groups < 0:
                return "a `)` closes nothing"
        elif character == "(":
            open_groups += 1
            at += pattern.startswith("(?", at)
        elif character in _REPEATS and not repeatable:
            return f"a `{character}` repeats nothing"
        repeatable = character not in _NOTHING
        at += 1
    return "a `(` is never closed" if open_groups else ""


def end_of_escape(pattern: str, at: int) -> int:
    """The last character of the escape whose letter is ``at``; for a quotation, that of its end."""
    if not pattern.startswith("Q", at):
        return at
    end = pattern.find("\\E", at)
    return end + 1 if end > 0 else len(pattern) - 1


def end_of_class(pattern: str, start: int) -> int:
    """The end of the class that begins at ``start``; 0 if it has none."""
    at = start + 1 + pattern.startswith("^", start + 1)
    at += pattern.startswith("]", at)
    while at < len(pattern) and pattern[at] != "]":
        named = pattern.find(":]", at + 2, at + _LONGEST_CLASS) if pattern.startswith("[:", at) else -1
        at = named + 2 if named > 0 else at + 2 if pattern[at] == "\\" else at + 1
    return at if at < len(pattern) else 0
