"""Parts of several formats: colours, aligned columns, text on one line, indented JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from reconciler.printable import printable_json
from reconciler.render.style import TextStyle

_COLOURS = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "blue": "34", "grey": "90"}


def paint_text(text: str, colour: str, on: bool) -> str:
    """``text`` in ``colour`` where ``on``; an empty colour leaves it as it is."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if on and colour else text


def section_text(sections: Iterable[tuple[str, str]], *, colour: bool) -> str:
    """Titles with their lines as one text; a section without lines is left out."""
    shown = []
    for title, lines in sections:
        if lines:
            shown.append(f"\n{paint_text(title, 'bold', colour)}\n{lines}\n" if title else f"{lines}\n")
    return "".join(shown)


def align_columns(rows: Sequence[Sequence[str]], indent: str = "", colours: dict[str, str] | None = None) -> str:
    """``rows`` as lines with aligned cells; ``colours`` maps the text of a cell to its colour."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            paint_text(cell, (colours or {}).get(cell, ""), bool(colours)) + " " * (width - len(cell))
            for cell, width in zip(row, widths, strict=True)
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def table_text(
    heading: Sequence[str], rows: Iterable[Sequence[str]], style: TextStyle, colours: dict[str, str] | None = None
) -> str:
    """``rows`` aligned below ``heading``, which is as wide where it is left out; ``""`` if there are none."""
    cells = [heading, *rows]
    text = align_columns(cells, colours=colours if style.colour else None) if len(cells) > 1 else ""
    return text if style.headings else text.partition("\n")[2]


def strip_control(text: str) -> str:
    """``text`` on one line, without control characters."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else " " for sign in text)


def as_json(value: object) -> bytes:
    """``value`` as indented JSON."""
    return printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()).encode()
