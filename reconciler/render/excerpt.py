"""The source line of a finding, with carets under the value."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

from reconciler.documents.limits import EXCERPT_BYTES, SIZE_RULES
from reconciler.model.finding import Finding

if TYPE_CHECKING:
    from reconciler.source.file_reader import Read

WIDTH = 100
"""Columns shown of a line; of a longer line, those around the caret."""
LONGEST = 4 * WIDTH
"""The most characters shown of a line: some take no column."""
MARGIN = len("       | ……")
"""Columns beside a line: its number, and what stands for the rest of it."""
BEFORE = 30
"""Columns shown before the caret in a cut line."""
TAB = "    "
HIDDEN = "*** (not shown, since it may be part of a secret)"


class Excerpts:
    """Excerpts of files with findings; a file is read once where its findings are consecutive."""

    def __init__(self, read: Read, *, secrets: bool = True) -> None:
        """``secrets``: hide lines that may be part of a secret."""
        self._read = read
        self._hides_secrets = secrets
        self._path = ""
        self._lines: list[str | None] = []
        self._ends: dict[tuple[int, int], int] = {}
        self._width = WIDTH

    def narrow(self, columns: int) -> None:
        """Show lines that fit a terminal of ``columns``."""
        self._width = max(min(WIDTH, columns - MARGIN), BEFORE + 1)

    def of(self, finding: Finding) -> tuple[str, str] | None:
        """Return the line of ``finding`` and the line of carets below it; None if there is no line to show."""
        if not finding.line or finding.rule in SIZE_RULES:
            return None
        if finding.path != self._path:
            # Loaded here, since a plan without findings shows no line.
            from reconciler.documents.event_positions import find_scalar_spans
            from reconciler.documents.redaction import lines_of, visible_lines

            raw = self._read(finding.path)
            raw = raw if len(raw) <= EXCERPT_BYTES else b""
            lines: list[str | None] = visible_lines(raw) if self._hides_secrets else [*lines_of(raw)]
            self._path, self._lines, self._ends = finding.path, lines, find_scalar_spans(raw)
        if finding.line > len(self._lines):
            return None
        line = self._lines[finding.line - 1]
        start = max(finding.column - 1, 0)
        if line is None or start > len(line):
            return HIDDEN, ""
        stop = min(self._ends.get((finding.line, finding.column), 0) - 1, len(line.rstrip()))
        return underline_range(line, start, max(stop, start + 1), self._width)


def underline_range(line: str, start: int, stop: int, columns: int = WIDTH) -> tuple[str, str]:
    """Return ``line`` as a terminal shows it, and the carets below the characters from ``start`` to ``stop``."""
    line = line.rstrip()
    first, last = 0, len(line)
    # In a file that is one long line, no finding scans the whole line.
    if len(line) > LONGEST or sum(_render_cell(character)[1] for character in line) > columns:
        first = max(0, start - BEFORE)
        last = _find_fitting_end(line, first, columns)
    cells = [_render_cell(character) for character in line[first:last]]
    shown = "…" * (first > 0) + "".join(text for text, _ in cells) + "…" * (last < len(line))
    indent = (first > 0) + sum(width for _, width in cells[: start - first])
    length = sum(width for _, width in cells[start - first : max(stop - first, 0)])
    return shown, " " * indent + "^" * max(length, 1)


def _find_fitting_end(line: str, first: int, room: int) -> int:
    """The end of the characters from ``first`` that fit into ``room`` columns."""
    end = min(len(line), first + LONGEST)
    for number in range(first, end):
        room -= _render_cell(line[number])[1]
        if room < 0:
            return number
    return end


def _render_cell(character: str) -> tuple[str, int]:
    """A character as shown, and its width in columns; characters that move the cursor are escaped."""
    if " " <= character <= "~":
        return character, 1
    if character == "\t":
        return TAB, len(TAB)
    if category(character) in ("Mn", "Me"):
        return character, 0
    if not character.isprintable():
        written = character.encode("unicode_escape", "replace").decode()
        return written, len(written)
    return character, 2 if east_asian_width(character) in "WF" else 1
