"""Converts quantities of Kubernetes and Compose to those of the platform, always rounded up."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil

_QUANTITY = re.compile(r"(?=\.?[0-9])([0-9]{0,20})(?:\.([0-9]{0,20}))?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MEBIBYTE = 1 << 20
_GIGABYTE = 10**9


def parse_quantity(text: str) -> Fraction | None:
    """``500m``, ``1.5Gi``, ``2e3`` → the number, in cores or bytes; None where it is no quantity."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    whole, digits, suffix = match.group(1), match.group(2) or "", match.group(3) or ""
    number = Fraction(int(whole + digits), 10 ** len(digits))
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:] or 0)
    power = int("1" + "0" * abs(exponent))
    return number * power if exponent >= 0 else number / power


def format_cpu(cores: Fraction) -> str:
    """Cores in the platform's format: ``"2"``, else ``500m`` (docs/platform/workload.md#cpu-and-memory)."""
    thousandths = max(1, ceil(cores * 1000))
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def format_memory(size: Fraction) -> str:
    """Bytes in the platform's format: ``1Gi``, else ``256Mi`` (docs/platform/workload.md#cpu-and-memory)."""
    mebibytes = max(1, ceil(size / _MEBIBYTE))
    return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"


def convert_to_gigabytes(size: Fraction) -> int:
    """Bytes as whole GB, the unit of volume capacities (docs/platform/volumeset.md#spec)."""
    return ceil(size / _GIGABYTE)
