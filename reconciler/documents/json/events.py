"""The events of a file in JSON, as the parser has them for YAML: one reader serves both.

The parser reads most of JSON too, but not all: it ends at keys of more than 1,024 characters or with a line break
before their colon, and folds some line breaks in texts. It also takes much that is no JSON.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Any, Never

import msgspec

from reconciler.documents.events import (
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)
from reconciler.documents.fault_sink import FormFault
from reconciler.model.finding import Fault

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_SPACE = re.compile(r"[ \t\n\r]*+")
_TEXT = re.compile(r'"([^"\\\x00-\x1f]*)"')
_WORD = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)(?![\w.+-])")
_INFINITE = re.compile(r"[-+]?(?:NaN|Infinity)\b")
_COMMENT = re.compile(r"//|/\*|#")
_UNSEEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_decode = JSONDecoder().raw_decode
_CLOSING = {"{": "}", "[": "]"}
_YAML = "or write the manifest in YAML, as FILE.yaml"


class _Mark(msgspec.Struct, gc=False):
    """A place in the text, as the parser's marks have it: all count from 0."""

    index: int
    starts: list[int]

    @property
    def line(self) -> int:
        """The number of its line."""
        return bisect_right(self.starts, self.index) - 1

    @property
    def column(self) -> int:
        """The number of characters before it on its line."""
        return self.index - self.starts[self.line]


class JsonEvents:
    """The events of ``text``, which is one value, one for each call of ``get_event``.

    Each item of a list at the root is a document. ``get_event`` raises FormFault where the text is no JSON.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0, *(match.end() for match in _BREAK.finditer(text))]
        self._opened: list[int] = []
        self.get_event = self._stream().__next__

    def _stream(self) -> Iterator[Any]:
        start = self._mark(0)
        yield StreamStartEvent(start, start)
        self._check_characters()
        if self._sign() == "[":
            yield from self._documents()
        else:
            yield from self._document()
        if self._sign():
            several = "several resources are one list: [{…}, {…}]" if self._sign() == "{" else "remove it"
            self._refuse("the JSON value of this file ends before this", several)
        yield StreamEndEvent(self._mark(), self._mark())

    def _documents(self) -> Iterator[Any]:
        """The documents of the list that begins here."""
        self._open()
        if self._sign() == "]":
            self._close()
            return
        while True:
            yield from self._document()
            if self._sign() == "]":
                self._close()
                return
            self._comma()

    def _document(self) -> Iterator[Any]:
        self._sign()
        start = self._mark()
        yield DocumentStartEvent(start, start)
        yield from self._value(len(self._opened))
        yield DocumentEndEvent(self._mark(), self._mark())

    def _value(self, around: int) -> Iterator[Any]:
        """The events of the value that begins here, within ``around`` open brackets."""
        while True:
            sign = self._sign()
            if sign == "{" or sign == "[":
                yield self._open()
                if self._sign() == _CLOSING[sign]:
                    yield self._close()
                elif sign == "{":
                    yield self._key()
                    continue
                else:
                    continue
            else:
                yield self._scalar(sign)
            while len(self._opened) > around and self._sign() in ("}", "]"):
                yield self._close()
            if len(self._opened) == around:
                return
            self._comma()
            if self._text[self._opened[-1]] == "{":
                yield self._key()

    def _sign(self) -> str:
        """The next character that is no space; "" at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _open(self) -> Any:
        start = self._mark()
        self._opened.append(self._at)
        self._at += 1
        kind = MappingStartEvent if self._text[start.index] == "{" else SequenceStartEvent
        return kind(None, None, True, start, self._mark(), True)

    def _close(self) -> Any:
        opened = self._text[self._opened[-1]]
        if self._text[self._at] != _CLOSING[opened]:
            line = self._mark(self._opened[-1]).line + 1
            self._refuse(f"this does not close the {opened} of line {line}", f"write {_CLOSING[opened]}")
        start = self._mark()
        self._opened.pop()
        self._at += 1
        kind = MappingEndEvent if opened == "{" else SequenceEndEvent
        return kind(start, self._mark())

    def _comma(self) -> None:
        sign = self._sign()
        if sign != ",":
            closing = _CLOSING[self._text[self._opened[-1]]]
            self._refuse(f"here is neither a comma nor {closing}", f"write a comma between two members, or {closing}")
        comma = self._at
        self._at += 1
        if self._sign() in ("}", "]"):
            self._at = comma
            self._refuse("nothing follows this comma", "remove the comma")

    def _key(self) -> Any:
        if self._sign() != '"':
            self._refuse("here is no key in double quotes", 'write "KEY": VALUE')
        key = self._read_quoted()
        if self._sign() != ":":
            self._refuse("here is no colon after a key", 'write "KEY": VALUE')
        self._at += 1
        return key

    def _scalar(self, sign: str) -> Any:
        if sign == '"':
            return self._read_quoted()
        match = _WORD.match(self._text, self._at)
        if match is None:
            if _INFINITE.match(self._text, self._at):
                self._refuse("this is not a finite number", "write a finite number, or a text in quotes", "nan")
            self._refuse("here is no JSON value", "a text is in double quotes, a number in plain decimal")
        start = self._mark()
        self._at = match.end()
        return ScalarEvent(None, None, (True, False), match[0], start, self._mark(), None)

    def _read_quoted(self) -> Any:
        start = self._mark()
        match = _TEXT.match(self._text, self._at)
        if match is not None:
            value, self._at = match[1], match.end()
        else:
            value, self._at = self._read_escaped()
        return ScalarEvent(None, None, (False, True), value, start, self._mark(), '"')

    def _read_escaped(self) -> tuple[str, int]:
        """The text with escapes that begins here, and where it ends."""
        begin = self._at
        try:
            value, end = _decode(self._text, begin)
        except JSONDecodeError as error:
            if error.msg.startswith("Unterminated"):
                self._refuse("the text that begins here is never closed", "add the closing quote")
            self._at = error.pos
            if error.msg.startswith("Invalid control"):
                self._refuse("a text ends on its line and has no tab", r"write \n or \t, and close it with a quote")
            self._refuse("this escape is not one of JSON", r"write the backslash twice, or \u with four digits")
        if _SURROGATE.search(value):
            self._refuse("this text has half of a pair of surrogates", r"write both halves, as in \ud83d\ude00")
        return value, end

    def _check_characters(self) -> None:
        match = _UNSEEN.search(self._text)
        if self._text.startswith("\ufeff"):
            self._refuse("this file begins with a byte order mark", "save it as UTF-8 without one", "encoding")
        if match is not None:
            self._at = match.start()
            message = "this file has a character that is neither printable nor a tab or line break"
            self._refuse(message, "remove it", "control-character")

    def _refuse(self, message: str, suggestion: str, rule: str = "syntax") -> Never:
        if _COMMENT.match(self._text, self._at):
            message, suggestion = "JSON has no comments", f"remove the comment, {_YAML}"
        elif self._at == len(self._text) and self._opened:
            opened = self._text[self._opened[-1]]
            line = self._mark(self._opened[-1]).line + 1
            message, suggestion = f"the {opened} of line {line} is not closed", f"add {_CLOSING[opened]}"
        mark = self._mark()
        raise FormFault(Fault(rule, message, mark.line + 1, mark.column + 1, suggestion))

    def _mark(self, index: int = -1) -> Any:
        """The mark of ``index``, or of where the reading is."""
        return _Mark(self._at if index < 0 else index, self._starts)
