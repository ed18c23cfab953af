"""Values of scalars by YAML 1.2's core schema; refuses spellings that YAML 1.1 reads differently."""

from __future__ import annotations

import re

import msgspec

Scalar = str | int | float | bool | None

MERGE_KEY = "<<"

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_FORMER_BOOLS = {
    spelling: meaning
    for word, meaning in {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}.items()
    for spelling in (word, word.capitalize(), word.upper())
}

# A plain scalar that is not one of these words and does not begin like a number is text: for most scalars two cheap
# tests are enough.
WORDS = _NULLS | _BOOLS.keys() | _FORMER_BOOLS.keys() | {MERGE_KEY}
NUMERIC = frozenset("0123456789+-.")

_NUMBER = re.compile(
    r"""
      (?P<int>       [-+]? (?: 0 | [1-9][0-9]* ))
    | (?P<hex>       0x [0-9a-fA-F]+ )
    | (?P<zero>      [-+]? 0 [0-9]+ )
    | (?P<float>     [-+]? (?: \.[0-9]+ | [0-9]+ (?:\.[0-9]*)? ) (?: [eE][-+]?[0-9]+ )? )
    | (?P<special>   [-+]? \.(?:inf|Inf|INF) | \.(?:nan|NaN|NAN) )
    | (?P<prefix>    [-+]? 0 (?: o[0-7_]+ | b[01_]+ | x[0-9a-fA-F_]+ ))
    | (?P<underline> [-+]? (?: [0-9][0-9_]* (?:\.[0-9_]*)? | \.[0-9][0-9_]* ) (?: [eE][-+]?[0-9]+ )? )
    | (?P<sixty>     [-+]? [0-9][0-9_]* (?: :[0-5]?[0-9] )+ (?:\.[0-9_]*)? )
    """,
    re.VERBOSE,
)
_FORMER_NUMBERS = {
    "zero": "a number that begins with 0 is octal for some readers and decimal for others",
    "prefix": "a number with this prefix is text for some readers",
    "underline": "digits with underscores are a number for some readers and text for others",
    "sixty": "digits with colons are a number in base 60 for some readers and text for others",
}
_LARGEST = 2**63 - 1
_SURE = 18
"""The number of digits that always fit into 64 bits."""
_LONGEST = 20


class ScalarProblem(msgspec.Struct, frozen=True, gc=False):
    """A refused scalar: the rule, the message and a correction. Never quotes free text.

    ``key_suggestion`` is the correction of a key, which is always text.
    """

    rule: str
    message: str
    suggestion: str
    key_suggestion: str = ""


def parse_plain_scalar(text: str) -> Scalar | ScalarProblem:
    """The value of an unquoted scalar without a tag: null, a boolean, a 64-bit integer, a finite float, or its text."""
    if text in WORDS:
        return _parse_word(text)
    if text[0] not in NUMERIC:
        return text
    # A file may hold hundreds of thousands of numbers, nearly all like these; the pattern takes longer.
    if len(text) <= _SURE and text.isdecimal() and text.isascii() and text[0] != "0":
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    form = match.lastgroup or ""
    if form == "int":
        return _parse_integer(text, 10)
    if form == "hex":
        return _parse_integer(text[2:], 16)
    if form == "float":
        return _parse_float(text)
    if form == "special":
        return ScalarProblem(
            "nan", f"{text} is not a finite number", "write a finite number, or put the text in quotes"
        )
    hint = "put it in quotes, or write the number in plain decimal"
    return ScalarProblem("ambiguous-scalar", _FORMER_NUMBERS[form], hint, "put the key in quotes")


def parse_literal_scalar(text: str) -> Scalar | ScalarProblem:
    """The value of an unquoted scalar in a field for text: ``1.10`` and ``true`` stay as written, null stays null."""
    if text in _NULLS:
        return None
    return _parse_word(text) if text in _FORMER_BOOLS else text


def _parse_word(text: str) -> Scalar | ScalarProblem:
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if text in _FORMER_BOOLS:
        meant = "true" if _FORMER_BOOLS[text] else "false"
        return ScalarProblem(
            "ambiguous-scalar",
            f"{text} is a boolean for some readers and text for others",
            f'write "{text}" in quotes, or {meant} for a boolean',
            f'write "{text}" in quotes',
        )
    return text


def former_boolean(text: str) -> bool | None:
    """The boolean that YAML 1.1 reads in ``text``; None if it reads none."""
    return _FORMER_BOOLS.get(text)


def _parse_integer(digits: str, base: int) -> int | ScalarProblem:
    # The length first: converting a million digits takes seconds.
    if len(digits) <= _LONGEST and -_LARGEST - 1 <= (value := int(digits, base)) <= _LARGEST:
        return value
    return ScalarProblem("number-range", "this integer does not fit into 64 bits", "put it in quotes if it is text")


def _parse_float(text: str) -> float | ScalarProblem:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return ScalarProblem("number-range", "this number is too large for 64 bits", "put it in quotes if it is text")
    return value


_CORE = "tag:yaml.org,2002:"
_SCALARS = {"int": int, "float": float, "bool": bool, "null": type(None)}
_UNKNOWN = ScalarProblem(
    # The tag is not shown: it may be a password that begins with an exclamation mark.
    "unknown-tag",
    "this tag is not one of YAML's core schema",
    "remove the tag, or put text that begins with ! in quotes",
)
_KINDS = _SCALARS.keys() | {"str", "map", "seq"}


def parse_tagged_scalar(tag: str, text: str) -> Scalar | ScalarProblem:
    """The value of a scalar under ``tag``, a tag in its long form; ``!`` alone makes it text."""
    kind = _get_tag_kind(tag)
    if kind == "str":
        return text
    if kind not in _KINDS:
        return _UNKNOWN
    if kind not in _SCALARS:
        return _make_mismatch(kind)
    value = parse_plain_scalar(text)
    if kind == "float" and type(value) is int:
        return float(value)
    return value if type(value) in (_SCALARS[kind], ScalarProblem) else _make_mismatch(kind)


def check_collection_tag(tag: str, kind: str) -> ScalarProblem | None:
    """The problem of ``tag`` on a collection of ``kind`` (``map`` or ``seq``), None if there is none."""
    text = _get_tag_kind(tag)
    if tag == "!" or text == kind:
        return None
    return _make_mismatch(text) if text in _KINDS else _UNKNOWN


def _get_tag_kind(tag: str) -> str:
    return "str" if tag == "!" else tag.removeprefix(_CORE) if tag.startswith(_CORE) else ""


def _make_mismatch(kind: str) -> ScalarProblem:
    return ScalarProblem(
        "tag-mismatch", f"the tag !!{kind} does not fit this value", "remove the tag, or correct the value"
    )
