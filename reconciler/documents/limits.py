"""How much one file may ask of the reader."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, gc=False):
    """Bounds of one file; depth, aliases, nodes and bytes for each document, an alias counted as what it stands for.

    ``document_bytes`` is compared with the document's characters, which are never more than its bytes.
    """

    depth: int = 64
    aliases: int = 1_000
    nodes: int = 100_000
    document_bytes: int = 1 << 20
    file_bytes: int = 16 << 20
    documents: int = 5_000
    faults: int = 100


LIMITS = Limits()
