"""Limits of what the reader takes from one file."""

from __future__ import annotations

import os

import msgspec

from reconciler.errors import UsageError


class Limits(msgspec.Struct, frozen=True, gc=False):
    """Bounds of one file; depth, aliases, nodes and bytes for each document, an alias counted as what it stands for.

    A file may have ``file_nodes`` nodes, and ``document_share`` more for each document: one that is full of ordinary
    manifests is not refused, and one bomb of a hundred documents is.
    ``document_bytes`` is compared with the document's characters, which are never more than its bytes.
    """

    depth: int = 64
    aliases: int = 1_000
    nodes: int = 100_000
    file_nodes: int = 250_000
    document_share: int = 100
    document_bytes: int = 1 << 20
    file_bytes: int = 16 << 20
    documents: int = 5_000
    faults: int = 100

    def file_nodes_at(self, documents: int) -> int:
        """The limit of nodes of the first ``documents`` of a file together."""
        return self.file_nodes + self.document_share * documents


LIMITS = Limits()

EXCERPT_BYTES = LIMITS.document_bytes
"""No line of a larger file is shown: to find lines without secrets takes longer than to read it."""

SIZE_RULES = frozenset(
    {
        "too-deep",
        "too-large",
        "too-many-aliases",
        "too-many-directives",
        "too-many-documents",
        "too-many-faults",
        "too-many-nodes",
    }
)
"""Rules about size, depth and number. No single line breaks them, so no excerpt is shown."""


def read_within(path: str | os.PathLike[str], limit: int = LIMITS.file_bytes) -> bytes:
    """The content of the file at ``path``, at most ``limit`` bytes.

    Raises UsageError where it is larger, which its size alone decides, and OSError where it cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(limit + 1) if size <= limit else b""
    # What is no regular file, or grows, does not say its size.
    if size > limit or len(content) > limit:
        raise UsageError(f"{os.fspath(path)} is larger than {shown_size(limit)}, so that it is not read")
    return content


def shown_size(count: int) -> str:
    """``count`` bytes in KiB or MiB."""
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
