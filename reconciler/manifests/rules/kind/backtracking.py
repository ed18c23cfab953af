"""Finds regular expressions whose time grows exponentially: a repeat of what is itself nothing but repeats."""

from __future__ import annotations

import re
from typing import NamedTuple

from reconciler.manifests.rules.kind.patterns import end_of_class, end_of_escape

_COUNTS = re.compile(r"\{(\d*)(,?)(\d*)\}")
_NO_TEXT = frozenset("^$")
_NO_TEXT_ESCAPES = frozenset("bBAzZG")
_HEAD = re.compile(r"\(\?(?:[:=!>|]|<[=!]|P?<\w+>|'\w+'|[a-zA-Z^-]*:?)")
_ASSERTIONS = ("(?=", "(?!", "(?<=", "(?<!")


class _Repeat(NamedTuple):
    """How often something is repeated: ``end`` is behind it. ``possessive`` ones never give anything back."""

    least: int
    unbounded: bool
    possessive: bool
    end: int


class _Group:
    """A group that is open, with the alternative that is read."""

    def __init__(self, head: str = "") -> None:
        self.is_assertion = head in _ASSERTIONS
        self.atomic = head == "(?>"
        self.repeats = self.fixed = False
        self.any_repeats = self.any_loose = False
        self.all_fixed = True

    def end_alternative(self) -> None:
        """Take over what is known of the alternative, and begin the next."""
        self.any_repeats |= self.repeats
        self.any_loose |= self.repeats and not self.fixed
        self.all_fixed &= self.fixed
        self.repeats = self.fixed = False

    def add_group(self, group: _Group, repeat: _Repeat) -> None:
        """Take over a group that is closed, and repeated by ``repeat``."""
        free = not (group.is_assertion or group.atomic or repeat.possessive)
        self.repeats |= free and (group.any_repeats or repeat.unbounded)
        self.fixed |= not group.is_assertion and group.all_fixed and repeat.least > 0 and not repeat.unbounded

    def add_atom(self, repeat: _Repeat, *, is_empty: bool) -> None:
        """Take over what is one character, or none if it ``is_empty``."""
        self.repeats |= repeat.unbounded and not repeat.possessive
        self.fixed |= repeat.least > 0 and not repeat.unbounded and not is_empty


def has_nested_repeats(pattern: str) -> bool:
    """Whether ``pattern``, whose syntax is valid, repeats a group that has repeats and nothing that is always there.

    In `(a*)*` and `([a-z]+-?)+` each character can belong to any round, so a text that does not match is tried in
    exponentially many ways; in `(/[a-z]+)*` the slash tells the rounds apart. Its time is linear.
    """
    groups = [_Group()]
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "|":
            groups[-1].end_alternative()
            at += 1
        elif character == "(":
            head = _HEAD.match(pattern, at)
            groups.append(_Group(head[0] if head else ""))
            at += len(head[0]) if head else 1
        elif character == ")" and len(groups) > 1:
            group, repeat = groups.pop(), _parse_repeat(pattern, at + 1)
            group.end_alternative()
            if group.any_loose and repeat.unbounded and not (group.atomic or repeat.possessive):
                return True
            groups[-1].add_group(group, repeat)
            at = repeat.end
        else:
            at = _read_atom(pattern, at, groups[-1])
    return False


def _read_atom(pattern: str, at: int, group: _Group) -> int:
    """Take a character, class or escape with its repeat into ``group``; returns where the next one begins."""
    character, last = pattern[at], at
    if character == "[":
        last = end_of_class(pattern, at) or len(pattern)
    elif character == "\\":
        last = end_of_escape(pattern, at + 1)
    empty = character in _NO_TEXT or (character == "\\" and pattern[at + 1 : at + 2] in _NO_TEXT_ESCAPES)
    repeat = _parse_repeat(pattern, last + 1)
    group.add_atom(repeat, is_empty=empty)
    return repeat.end


def _parse_repeat(pattern: str, at: int) -> _Repeat:
    character, least, unbounded, end = pattern[at : at + 1], 1, False, at
    if character and character in "*+?":
        least, unbounded, end = int(character == "+"), character != "?", at + 1
    elif (counts := _COUNTS.match(pattern, at)) is not None and counts[1]:
        least, unbounded, end = int(counts[1].strip("0") != ""), bool(counts[2] and not counts[3]), counts.end()
    else:
        return _Repeat(1, False, possessive=False, end=at)
    follows = pattern[end : end + 1]
    return _Repeat(least, unbounded, follows == "+", end + (follows in ("+", "?")))
