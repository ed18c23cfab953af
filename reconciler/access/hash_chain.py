"""Chains of hashes: each covers the one before, so that a change of an entry shows in all that follow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

START = bytes(32)
"""The hash before the first entry."""


class ChainLink(NamedTuple):
    """An entry of a chain; numbers begin with 1."""

    number: int
    content: bytes
    hash: bytes


def compute_chain_hash(last: bytes, content: bytes) -> bytes:
    """The hash of ``content`` after an entry whose hash is ``last``."""
    return hashlib.sha256(last + content).digest()


def broken_links(chain: Iterable[ChainLink]) -> Iterator[int]:
    """Numbers of entries that do not follow from those before: changed, inserted, or after a removed one.

    A chain does not show that its last entries were removed.
    """
    last, expected = START, 1
    for link in chain:
        if link.number != expected or link.hash != compute_chain_hash(last, link.content):
            yield link.number
        last, expected = link.hash, link.number + 1
