"""The alias of a GVC: thirteen lower-case letters and digits, created once (docs/platform/fields.md#gvc)."""

from __future__ import annotations

import hashlib

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LENGTH = 13


def make_alias(org: str, gvc: str) -> str:
    """The alias of a new GVC; equal for equal names, so that a repeated step creates the same one."""
    number = int.from_bytes(hashlib.sha256(f"{org}/{gvc}".encode()).digest(), "big")
    text = ""
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        text += _DIGITS[digit]
    return text
