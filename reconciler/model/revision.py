"""A revision (one commit of a source) and the changes between two of them."""

from __future__ import annotations

import msgspec


class Revision(msgspec.Struct, frozen=True):
    """One commit of a source; ``tree`` is the id of the tree at the source's path, so equal trees mean equal input."""

    source: str
    ref: str
    commit: str
    tree: str
    author: str = ""
    subject: str = ""
    time: int = 0

    def __str__(self) -> str:
        return revision_text(self.ref, self.commit)


def revision_text(ref: str, commit: str) -> str:
    """``main@sha1:4f2a…``, or ``sha1:4f2a…`` if the source names a commit instead of a branch or tag."""
    return f"sha1:{commit}" if ref == commit else f"{ref}@sha1:{commit}"


class FileChange(msgspec.Struct, frozen=True, order=True, gc=False):
    """One manifest file that differs between two trees: blob ids before and after, empty if there is none."""

    path: str
    before: str
    after: str
