"""Quantities: amounts of CPU and memory in manifests, as whole numbers."""

from __future__ import annotations

from functools import lru_cache

MIB = 1024**2
GIB = 1024**3
_DIGITS = 15
"""The most digits, enough for any machine; the limit keeps every sum of quantities small."""


@lru_cache(2048)
def parse_millicores(text: str) -> int:
    """``500m`` → 500, ``2`` → 2000: thousandths of a core (docs/platform/workload.md#cpu-and-memory).

    Raises ValueError if ``text`` is neither millicores nor whole cores.
    """
    return _parse_whole_number(text[:-1], text) if text.endswith("m") else 1000 * _parse_whole_number(text, text)


@lru_cache(2048)
def memory_bytes(text: str) -> int:
    """``256Mi`` → 268435456: bytes (docs/platform/workload.md#cpu-and-memory).

    Raises ValueError if ``text`` is not a whole number of Mi or Gi.
    """
    if text.endswith("Mi"):
        return MIB * _parse_whole_number(text[:-2], text)
    if text.endswith("Gi"):
        return GIB * _parse_whole_number(text[:-2], text)
    raise ValueError(f"{text[:60]!r} is not an amount of memory; write a whole number with Mi or Gi")


def _parse_whole_number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise ValueError(f"{text[:60]!r} is not a quantity; write digits and their unit, such as 500m or 256Mi")
    return int(digits)
