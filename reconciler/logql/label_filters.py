"""Conditions on the labels of a line: texts, numbers, durations, sizes and addresses, joined by ``and`` and ``or``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

import msgspec

from reconciler.logql.addresses import AddressRange
from reconciler.logql.extraction import ERROR, Labels

_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "y": 31536000.0,
}
_BYTES = {
    "b": 1,
    "kb": 10**3,
    "kib": 2**10,
    "mb": 10**6,
    "mib": 2**20,
    "gb": 10**9,
    "gib": 2**30,
    "tb": 10**12,
    "tib": 2**40,
    "pb": 10**15,
    "pib": 2**50,
    "eb": 10**18,
    "eib": 2**60,
    "k": 10**3,
    "ki": 2**10,
    "m": 10**6,
    "mi": 2**20,
    "g": 10**9,
    "gi": 2**30,
    "t": 10**12,
    "ti": 2**40,
}
_DURATION = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|[smhdwy])")
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?([A-Za-z]+)")
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class LabelMatcher(msgspec.Struct, frozen=True):
    """One condition on a label: ``=`` or ``!=`` with a text, ``=~`` or ``!~`` with an expression for all of it."""

    label: str
    op: str
    value: str
    pattern: re.Pattern[str] | None = None
    addresses: AddressRange | None = None

    def matches(self, value: str) -> bool:
        """Whether a label with ``value`` matches."""
        if self.addresses is not None:
            same = self.addresses.contains(value)
        else:
            same = value == self.value if self.pattern is None else self.pattern.fullmatch(value) is not None
        return same is self.op.startswith("=")

    def passes(self, labels: Labels) -> bool:
        """Whether a line with ``labels`` matches; a missing label counts as empty."""
        return self.matches(labels.get(self.label, ""))


class Comparison(msgspec.Struct, frozen=True):
    """A label compared with a number, a duration in seconds or a size in bytes; ``read`` reads the label as that.

    A line without the label does not pass. A label that cannot be read is the error ``LabelFilterErr``, with which a
    line passes: only a filter on ``__error__`` takes it away.
    """

    label: str
    op: str
    value: float
    read: Callable[[str], float]

    def passes(self, labels: Labels) -> bool:
        """Whether a line with ``labels`` matches."""
        if labels.get(ERROR):
            return True
        if self.label not in labels:
            return False
        try:
            number = self.read(labels[self.label])
        except ValueError:
            labels[ERROR] = "LabelFilterErr"
            return True
        return COMPARISONS[self.op](number, self.value)


class Both(msgspec.Struct, frozen=True):
    """Two conditions that both hold."""

    left: Condition
    right: Condition

    def passes(self, labels: Labels) -> bool:
        """Whether a line with ``labels`` matches."""
        return self.left.passes(labels) and self.right.passes(labels)


class Either(msgspec.Struct, frozen=True):
    """Two conditions of which at least one holds."""

    left: Condition
    right: Condition

    def passes(self, labels: Labels) -> bool:
        """Whether a line with ``labels`` matches."""
        return self.left.passes(labels) or self.right.passes(labels)


Condition = LabelMatcher | Comparison | Both | Either


class LabelFilter(msgspec.Struct, frozen=True):
    """Lines whose labels meet a condition."""

    condition: Condition

    def filter_line(self, line: bytes, labels: Labels, stream: Mapping[str, str]) -> bytes | None:  # noqa: ARG002
        """The line if it passes."""
        return line if self.condition.passes(labels) else None


def read_number(text: str) -> float:
    """``text`` as a number. Raises ValueError."""
    return float(text)


def read_duration(text: str) -> float:
    """The seconds of a duration such as ``1h30m`` or ``1.5s``. Raises ValueError."""
    parts = _DURATION.findall(text)
    if not parts or "".join(parts) != text:
        raise ValueError(f"{text[:40]} is no duration")
    return sum(_parse_seconds(value) for value in parts)


def _parse_seconds(part: str) -> float:
    unit = part.lstrip("-.0123456789")
    return float(part.removesuffix(unit)) * _SECONDS[unit]


def read_size(text: str) -> float:
    """The bytes of a size such as ``20MB`` or ``1.5 KiB``. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    unit = _BYTES.get(match[2].lower()) if match is not None else None
    if match is None or unit is None:
        raise ValueError(f"{text[:40]} is no size")
    return float(match[1]) * unit


def reader_of(text: str) -> Callable[[str], float] | None:
    """What reads labels that are compared with ``text``: a number, a duration or a size; None for anything else."""
    for read in (read_number, read_duration, read_size):
        try:
            read(text)
        except ValueError:
            continue
        return read
    return None
