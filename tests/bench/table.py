"""Rows of the table: a figure beside its budget, and whether it keeps to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """``value`` and ``limit`` are seconds, megabytes (``MB``), percent (``%``) or a ratio (``times``)."""

    work: str
    value: float
    limit: float
    unit: str = "s"
    note: str = ""

    @property
    def verdict(self) -> str:
        """How far the figure is on the right or the wrong side of its budget."""
        if not self.limit:
            return ""
        used = self.value / self.limit
        return f"ok, {used:.0%}" if used <= 1 else f"MISSED, {used:.2f} times"


def shown(value: float, unit: str) -> str:
    """``12.3 ms``, ``1.25 s``, ``180 MB``, ``1.2 times``."""
    if not value:
        return "-"
    if unit != "s":
        return f"{value:.0f} {unit}" if unit == "MB" else f"{value:.3g} {unit}"
    if value < 0.001:
        return f"{value * 1000:.3f} ms"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s"


def cells(row: Row) -> tuple[str, ...]:
    """What stands in the columns of a row."""
    return row.work, shown(row.value, row.unit), shown(row.limit, row.unit), row.verdict, row.note


HEADING = ("work", "measured", "budget", "verdict", "")
WIDTHS = (58, 13, 11, 22)


def line(row: Iterable[str]) -> str:
    """One row as text."""
    *columns, note = row
    return "".join(cell.ljust(width) for cell, width in zip(columns, WIDTHS, strict=True)) + note
