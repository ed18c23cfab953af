"""Text that is safe to show: it cannot control a terminal, hide, reorder other text or end the code around it.

All text that leaves the program passes here: output of commands, logs, status files, Markdown, JSON and YAML. An unsafe
character becomes ``\\u009b``, which JSON and YAML in double quotes read as the same character.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from typing import Any, TextIO

_INVISIBLE = "\x80-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\ufffe\uffff"
UNSAFE = rf"\x7f{_INVISIBLE}\ud800-\udfff\U000e0000-\U000e0fff"
"""Unsafe characters, for a class of a regular expression besides the controls below the space: other controls,
invisible ones, changes of direction, rare line breaks and surrogates. Joiners, which some scripts need, are safe."""

# Compiled where they are first used: all of them take 4 ms, and a short command needs one.
_LINE = rf"[\x00-\x1f{UNSAFE}]"
_LINES = rf"[\x00-\x08\x0b-\x1f{UNSAFE}]"
_QUIET = rf"[{UNSAFE}]"
_TO_TERMINAL = (
    r"\x1b(?!\[(?:[0-9;]{0,8}m|\?(?:25|7)[hl]|J|[0-9]{1,4}A|K))|\r(?!\x1b\[(?:J|[0-9]{1,4}A))"
    rf"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f{UNSAFE}]"
)
"""Unsafe for a terminal; the sequences of colours and live tables are safe."""
_COMMAND = r"(?m)^(\s*)::(?!(?:error|warning|notice) (?:file|title)=)|##(?=\[|vso\[)"
"""Text that a CI runner executes as a command in a job log, except our own annotations."""
_EVENT_LENGTH = 500
_FINDING_LENGTH = 1_000
_RUNNERS = ("CI", "GITHUB_ACTIONS", "TF_BUILD")

_KEY = rf"[\x00-\x08\x0b-\x1f\u200c\u200d{UNSAFE}]"
_KEY_BYTES = (
    rb"\xc2[\x80-\x9f\xad]|\xd8\x9c|\xe1\xa0\x8e|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]"
    rb"|\xef\xbb\xbf|\xef\xbf[\xb0-\xbb\xbe\xbf]|\xf3\xa0"
)
"""The same in UTF-8, without controls, which the reader refuses."""


def escape_text(text: str) -> str:
    """``text`` on one line, with unsafe characters escaped."""
    return text if _is_plain(text) else re.sub(_LINE, _escape_character, text)


def replace_unsafe(text: str, replacement: str | Callable[[re.Match[str]], str] = "?") -> str:
    """``text`` on one line, with each unsafe character replaced."""
    return text if _is_plain(text) else re.sub(_LINE, replacement, text)


def make_visible_text(text: str) -> str:
    """``text`` on one line, with all unsafe and other unprintable characters escaped: a line break as ``\\n``."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return escape_text(text)


def printable_finding(text: str) -> str:
    """``text`` as findings carry it: on one line, unsafe characters escaped, the middle of more than 1,000 left out."""
    line = escape_text(text)
    if len(line) <= _FINDING_LENGTH:
        return line
    # A message quotes in its middle, and says before and after that what is wrong.
    half = _FINDING_LENGTH // 2
    return f"{line[:half]}…{line[1 - half :]}"


def truncate_text(text: str) -> str:
    """``text`` on one line and at most 500 characters, as events and conditions carry it."""
    line = " ".join(text.split())
    return line if len(line) <= _EVENT_LENGTH else line[: _EVENT_LENGTH - 1] + "…"


def printable_lines(text: str) -> str:
    """``text`` with its line breaks and tabs, and all other unsafe characters escaped."""
    return re.sub(_LINES, _escape_character, text)


def printable_json(text: str) -> str:
    """JSON with unsafe characters escaped; it has the same meaning."""
    return text if text.isascii() and "\x7f" not in text else re.sub(_QUIET, _json_escaped, text)


def printable_yaml(text: str) -> str:
    """YAML, whose texts are in double quotes, with unsafe characters escaped; it has the same meaning."""
    return text if text.isascii() and "\x7f" not in text else re.sub(_QUIET, _escape_character, text)


def is_name(text: str) -> bool:
    """Whether every character of a name or key is visible."""
    return _is_plain(text) or re.search(_KEY, text) is None


def _is_plain(text: str) -> bool:
    """Whether ``text`` is visible ASCII. Beyond it, Python calls some characters printable that nobody sees."""
    return text.isascii() and text.isprintable()


def may_hide(raw: bytes) -> bool:
    """Whether a file in UTF-8 may have a character that ``is_name`` refuses."""
    return not raw.isascii() and re.search(_KEY_BYTES, raw) is not None


def code_span(value: str) -> str:
    """``value`` as Markdown code: it cannot end a table cell or become a link, a mention or HTML."""
    if not value:
        return ""
    shown = escape_text(value)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    pad = " " if "`" in shown else ""
    return f"{fence}{pad}{shown.replace('|', chr(92) + '|')}{pad}{fence}"


def guard_stream(stream: TextIOWrapper, environ: Mapping[str, str] = os.environ) -> None:
    """Make ``stream`` escape text that controls a terminal or a CI runner, except this program's own sequences.

    The last line of defence, for text that arrives unescaped.
    """
    if hasattr(stream.write, "unguarded"):
        return
    write: Any = stream.write
    pattern = re.compile(_TO_TERMINAL if stream.isatty() else _LINES)
    in_job = any(environ.get(name) for name in _RUNNERS)

    def write_guarded(text: str) -> int:
        shown = text if text.isascii() and text.isprintable() else pattern.sub(_json_escaped, text)
        if in_job and ("::" in shown or "##" in shown):
            shown = re.sub(_COMMAND, _defuse_command, shown)
        write(shown)
        return len(text)

    write_guarded.unguarded = write  # type: ignore[attr-defined]
    stream.write = write_guarded  # type: ignore[method-assign]


def write_unguarded(stream: TextIO, text: str) -> None:
    """Write ``text`` to ``stream`` unchanged, and flush it."""
    getattr(stream.write, "unguarded", stream.write)(text)
    stream.flush()


def _defuse_command(match: re.Match[str]) -> str:
    return f"{match[1]}:\\u003a" if match[1] is not None else "#\\u0023"


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
