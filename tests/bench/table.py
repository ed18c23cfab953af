"""Rows of the table: a figure beside its budget, and whether it keeps to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

QUIET = 0.05
"""The share of the CPUs that other programs may use before a time on the clock says little."""


class Row(NamedTuple):
    """``value`` and ``limit`` are seconds, megabytes (``MB``), kilobytes (``KB``), percent of a core (``%``) or a ratio
    (``times``).

    ``cpu`` are the CPU seconds of all processes involved, 0 if not measured; they can share ``cores``.
    """

    work: str
    value: float
    limit: float
    unit: str = "s"
    note: str = ""
    cpu: float = 0
    cores: int = 1


class Machine(NamedTuple):
    """The machine during a measurement: ``pace`` is its time for a fixed task divided by that of the reference machine.

    ``others`` is the share of the CPUs that other programs used.
    """

    pace: float = 1
    others: float = 0


def verdict(row: Row, machine: Machine) -> str:
    """How far the figure is on the right or the wrong side of its budget at the pace of this machine.

    If other programs used much of the CPUs, the CPU seconds are compared instead of the time on the clock.
    """
    if not row.limit:
        return ""
    by_cpu = row.unit == "s" and row.cpu > 0 and machine.others > QUIET
    used = (row.cpu / row.cores if by_cpu else row.value) / scaled_limit(row, machine)
    return (f"ok, {used:.0%}" if used <= 1 else f"MISSED, {used:.2f} times") + (" by CPU" if by_cpu else "")


def scaled_limit(row: Row, machine: Machine) -> float:
    """The budget at the pace of this machine; memory and ratios do not depend on it."""
    return row.limit * machine.pace if row.unit in {"s", "%"} else row.limit


def shown(value: float, unit: str) -> str:
    """``12.3 ms``, ``1.25 s``, ``180 MB``, ``1.2 times``."""
    if not value:
        return "-"
    if unit != "s":
        return f"{value:.0f} {unit}" if unit in ("MB", "KB") else f"{value:.3g} {unit}"
    if value < 0.001:
        return f"{value * 1000:.3f} ms"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s"


def cells(row: Row, machine: Machine) -> tuple[str, ...]:
    """What stands in the columns of a row."""
    limits = shown(row.limit, row.unit), shown(scaled_limit(row, machine), row.unit)
    figures = shown(row.value, row.unit), shown(row.cpu, "s"), f"{machine.others:.0%}"
    return row.work, *figures, *limits, verdict(row, machine), row.note


HEADING = ("work", "measured", "CPU", "others", "budget", "here", "verdict", "")
WIDTHS = (70, 12, 10, 8, 11, 11, 28)


def line(row: Iterable[str]) -> str:
    """One row as text."""
    *columns, note = row
    return "".join(f"{cell} ".ljust(width) for cell, width in zip(columns, WIDTHS, strict=True)) + note
