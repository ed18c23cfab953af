"""Text as the source of manual pages, in the macros that man(7) describes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

CODE = re.compile(r"`([^`]+)`")


class Entry(NamedTuple):
    """A term of a list, with what is said about it."""

    term: str
    text: str


def escape_text(text: str) -> str:
    """``text`` with nothing in it that roff would take for an instruction."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", "\\\\&", plain, flags=re.MULTILINE)


def mark_code(text: str) -> str:
    """``text`` with what is between backticks in bold."""
    parts = CODE.split(text)
    return "".join(f"\\fB{escape_text(part)}\\fR" if at % 2 else escape_text(part) for at, part in enumerate(parts))


def write_title(name: str, day: str, version: str) -> str:
    """The beginning of the page ``name`` in section 1, whose words are never split; ``day`` may be empty."""
    return f'.TH "{escape_text(name.upper())}" 1 "{day}" "reconciler {version}" "User Commands"\n.nh\n.ad l\n'


def write_section(title: str, body: str) -> str:
    """A section; none without a body."""
    return f'.SH "{escape_text(title.upper())}"\n{body}' if body else ""


def write_subsection(title: str, body: str) -> str:
    """A part of a section."""
    return f'.SS "{escape_text(title)}"\n{body}'


def write_paragraphs(text: str) -> str:
    """Paragraphs that empty lines separate."""
    return "".join(f".PP\n{mark_code(' '.join(each.split()))}\n" for each in _split_paragraphs(text))


def write_example(command: str) -> str:
    """A command line, as it is."""
    return f".PP\n.nf\n.RS 4\n{escape_text(command)}\n.RE\n.fi\n"


def write_synopsis(lines: Iterable[str]) -> str:
    """How something is called, one line for each way."""
    return "".join(f".PP\n\\fB{escape_text(line)}\\fR\n" for line in lines)


def write_list(entries: Iterable[Entry]) -> str:
    """Terms, and what each is."""
    return "".join(f".TP\n\\fB{escape_text(each.term)}\\fR\n{mark_code(each.text) or '.'}\n" for each in entries)


def _split_paragraphs(text: str) -> Iterator[str]:
    for part in inspect.cleandoc(text).split("\n\n"):
        if part.strip():
            yield part.replace("\b", "")
