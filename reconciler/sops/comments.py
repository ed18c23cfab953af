"""Comments of a document and their parents: SOPS also encrypts the comments in encrypted values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from reconciler.model.finding import Pointer
from reconciler.sops.layout import DocumentLayout, TextSpan

_COMMENT = re.compile(r"(?:^|(?<=\s))#([^\r\n]*)", re.MULTILINE)


class SopsComment(NamedTuple):
    """A comment from its ``#`` at ``start`` to its ``end``, its text, and the pointer of its parent."""

    start: int
    end: int
    text: str
    holder: Pointer


def list_comments(text: str, part: DocumentLayout, begin: int) -> Iterator[SopsComment]:
    """The comments of a document whose text begins at ``begin``: what follows a ``#`` between its scalars."""
    first, last = TextSpan(begin, begin, (), 0), TextSpan(part.end, part.end, (), 0)
    for before, after in pairwise([first, *part.spans, last]):
        for match in _COMMENT.finditer(text, before.end, after.start):
            holder = _find_comment_parent(text, match.start(), before, after)
            yield SopsComment(match.start(), match.end(), match[1], holder)


def _find_comment_parent(text: str, start: int, before: TextSpan, after: TextSpan) -> Pointer:
    """The parent of a comment: that of the scalar on its line, else of the next one, unless that is nested deeper."""
    line = text.rfind("\n", 0, start) + 1
    alone = not text[line:start].strip()
    if alone and start - line <= after.column:
        return after.holder
    return before.holder
