"""Limits of the files that the reader accepts."""

from __future__ import annotations

import os

import msgspec

from reconciler.errors import UsageError


class Limits(msgspec.Struct, frozen=True, gc=False):
    """Limits of one file; depth, aliases, nodes and bytes are per document, aliases counted as if written out.

    A file may have ``file_nodes`` nodes, and ``document_share`` more for each document: many ordinary manifests are
    accepted, and a hundred large documents are not.
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
"""No line of a larger file is shown: finding lines without secrets takes longer than reading it."""

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

    Raises UsageError if it is larger, without reading it, and OSError if it cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # Not ``limit``: reading allocates as much as it may return, 50 µs for 16 MiB.
        content = file.read(size + 1) if size <= limit else b""
        if len(content) > size:
            # It grows, or it is a pipe or device, whose size is not known before.
            content += file.read(limit + 1 - len(content))
    if size > limit or len(content) > limit:
        raise UsageError(f"{os.fspath(path)} is larger than {shown_size(limit)}, so it is not read")
    return content


def depth_texts(limits: Limits) -> tuple[str, str]:
    """The message and the suggestion of a fault about depth."""
    message = f"lists and mappings are nested more than {limits.depth} levels deep here"
    return message, "nest less deeply; an unclosed bracket looks like this too"


def shown_size(count: int) -> str:
    """``count`` bytes in KiB or MiB."""
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
