"""Errors of PyYAML's parser as faults for people."""

from __future__ import annotations

import re

from yaml import Mark, MarkedYAMLError, YAMLError

from reconciler.documents.limits import Limits, depth_texts
from reconciler.documents.positions import find_position, start_of_line
from reconciler.model.finding import Fault

# Message of the parser → its replacement; {begin} is the line where the unfinished part begins.
_WORDING: dict[str, tuple[str, str]] = {
    "mapping values are not allowed in this context": (
        "a colon followed by a space is not allowed here",
        "quote the text if the colon belongs to it, and check the indentation of this line",
    ),
    "mapping keys are not allowed in this context": (
        "a mapping cannot begin here",
        "write it on a line of its own, indented below its key",
    ),
    "block sequence entries are not allowed in this context": (
        "a list cannot begin here",
        "write each `- ` on a line of its own, below its key",
    ),
    "could not find expected ':'": (
        "the text that begins on line {begin} is neither a key nor part of the value before it",
        "write `key: value`, or indent the line if it continues the value",
    ),
    "did not find expected key": (
        "this does not fit the mapping that begins on line {begin}",
        "align it with that mapping's keys; quote a value that contains quotes",
    ),
    "did not find expected '-' indicator": (
        "this does not fit the list that begins on line {begin}",
        "begin each entry with `- ` in the same column, and indent what belongs to it",
    ),
    "did not find expected ',' or ']'": (
        "the list that [ opens on line {begin} has an error here",
        "close it with ], or put a comma between its entries",
    ),
    "did not find expected ',' or '}'": (
        "the mapping that { opens on line {begin} has an error here",
        "close it with }, or put a comma between its entries",
    ),
    "did not find expected node content": ("a value is missing here", "write the value, or remove the comma"),
    "found unexpected end of stream": ("the quoted text that begins here is never closed", "add the closing quote"),
    "found unexpected document indicator": (
        "the quoted text that begins here is not closed before its document ends",
        "add the closing quote",
    ),
    "found unexpected ':'": ("a colon is not allowed here", "quote the text if the colon belongs to it"),
    "found unknown escape character": (
        "this escape is not known in double quotes",
        "write the backslash twice, or use single quotes",
    ),
    "did not find expected hexdecimal number": (
        "this escape needs hexadecimal digits",
        "write all its digits, or the backslash twice",
    ),
    "found invalid Unicode character escape code": (
        "this escape is no Unicode character",
        "write the character itself",
    ),
    "did not find expected alphabetic or numeric character": (
        "& or * must be followed by the name of an anchor",
        "quote the text if it begins with this character",
    ),
    "did not find expected <document start>": (
        "this is outside the document that ends before it",
        "indent it if it belongs to that document, or begin a new one with ---",
    ),
    "did not find expected comment or line break": (
        "only a comment may follow here",
        "move the text to the next line",
    ),
    "found unknown directive name": ("this directive is not known", "remove the line, or quote the text"),
    "found incompatible YAML document": ("this version of YAML is not known", "remove the %YAML line"),
}
_FROM_THE_BEGINNING = {"found unexpected end of stream", "found unexpected document indicator"}
_AT_DEPTH = "exceeded maximum nesting depth"
"""libyaml from 0.2.6 on ends at 1,000 levels, sometimes before the reader sees the first of them."""
_NO_TOKEN = "found character that cannot start any token"
_NO_TAG = {"found undefined tag handle", "did not find expected tag URI", "did not find expected '!'"}
_TAB = ("a tab is used for indentation", "indent with spaces")
_LAST_RESORT = "correct this line; text with special characters is safe in quotes"
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def explain_error(error: YAMLError, raw: bytes, limits: Limits) -> Fault:
    """The fault for ``error``, which the parser raised for ``raw`` (valid UTF-8)."""
    text = raw.decode("utf-8-sig")
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        if error.problem == _AT_DEPTH:
            message, suggestion = depth_texts(limits)
            return Fault("too-deep", message, error.problem_mark.line + 1, error.problem_mark.column + 1, suggestion)
        return _explain_problem(error.problem or "", error.problem_mark, error.context_mark or error.problem_mark, text)
    match = _UNPRINTABLE.search(text)
    line, column = find_position(text, match.start() if match else 0)
    message = "this file has a character that is neither printable nor a tab or line break"
    return Fault("control-character", message, line, column, "remove it")


def _explain_problem(problem: str, at: Mark, began: Mark, text: str) -> Fault:
    mark = began if problem in _FROM_THE_BEGINNING else at
    line, column = mark.line + 1, mark.column + 1
    before, character = _get_surroundings(text, at.index)
    rule = "syntax"
    if "\t" in before:
        rule, column, (message, suggestion) = "tab", before.index("\t") + 1, _TAB
    elif "tab character" in problem or (problem == _NO_TOKEN and character == "\t"):
        rule, (message, suggestion) = "tab", _TAB
    elif problem == _NO_TOKEN:
        message, suggestion = f"a value cannot begin with {character}", "put the value in quotes"
    elif problem in _NO_TAG:
        rule, message, suggestion = "unknown-tag", "this is no known tag", "put text that begins with ! in quotes"
    else:
        message, suggestion = _WORDING.get(problem, (f"this is not well-formed YAML: {problem}", _LAST_RESORT))
        message = message.replace("{begin}", str(began.line + 1))
    return Fault(rule, message, line, column, suggestion)


def _get_surroundings(text: str, index: int) -> tuple[str, str]:
    """The indentation of the line of the character at ``index``, and that character."""
    line = text[start_of_line(text, index) :].partition("\n")[0]
    return line[: len(line) - len(line.lstrip())], text[index : index + 1]
