"""Compares two trees; finds differences without reading equal parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from reconciler.errors import SourceError

DEEPEST = 64
MOST_ENTRIES = 2_200_000
"""Enough for two revisions of a million files that all differ, with their directories."""

_TREE, _LINK, _MODULE = b"40000", b"120000", b"160000"
_ENTRY = re.compile(rb"([0-7]+) ([^\0/]+)\0(.{20})", re.DOTALL)
_PIECE = re.compile(rb"(?>[0-7]+ [^\0/]+\0.{20}){1,32}+", re.DOTALL)
_MANIFEST = (b".yaml", b".yml")


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A tree entry: its mode and the raw id of the object."""

    mode: bytes
    id: bytes

    @property
    def symlink(self) -> bool:
        """Whether it is a symbolic link, to a file or to a directory."""
        return self.mode == _LINK

    @property
    def submodule(self) -> bool:
        """Whether it is a commit of another repository."""
        return self.mode == _MODULE

    @property
    def tree(self) -> bool:
        """Whether it is a directory."""
        return self.mode == _TREE


class Difference(msgspec.Struct, frozen=True, gc=False):
    """One path, as bytes, that differs between the two trees; ``None`` if a side has no entry."""

    path: bytes
    before: Entry | None
    after: Entry | None


def parse_tree(content: bytes) -> dict[bytes, Entry]:
    """The entries of a tree object by name, directories with a trailing slash. Raises SourceError if malformed."""
    return _by_name(_ENTRY.findall(b"".join(_pieces(content))))


def _pieces(content: bytes) -> list[bytes]:
    """The entries of a tree object as bytes, 32 at a time, so that equal pieces need no parsing."""
    pieces: list[bytes] = _PIECE.findall(content)
    # A tree that is only partly readable must not pass for a smaller one.
    if sum(map(len, pieces)) != len(content):
        raise SourceError("a tree object is malformed; run git fsck on the repository")
    return pieces


def _by_name(entries: Iterable[tuple[bytes, ...]]) -> dict[bytes, Entry]:
    return {name + b"/" if mode == _TREE else name: Entry(mode, id_) for mode, name, id_ in entries}


class Walk:
    """One comparison. ``read`` returns a tree object's bytes for its raw id; an empty id means an empty tree.

    Limited to 64 levels of directories and 2,200,000 entries, since a few hundred bytes of Git objects can describe
    billions of files. Raises SourceError beyond these limits.
    """

    def __init__(self, read: Callable[[bytes], bytes]) -> None:
        self._read = read
        self._visited = 0

    def differences(self, before: bytes, after: bytes) -> Iterator[Difference]:
        """Differing possible manifests (by suffix) and submodules, in path order, without dot-directories."""
        if before != after:
            yield from self._below(before, after, b"")

    def _below(self, before: bytes, after: bytes, prefix: bytes) -> Iterator[Difference]:
        old_pieces, new_pieces = self._tree_pieces(before), self._tree_pieces(after)
        old = set(_ENTRY.findall(b"".join(old_pieces - new_pieces)))
        new = set(_ENTRY.findall(b"".join(new_pieces - old_pieces)))
        left, right = _by_name(old - new), _by_name(new - old)
        self._count(len(left) + len(right), prefix)
        for name in sorted(left.keys() | right.keys()):
            one, other = left.get(name), right.get(name)
            if not name.endswith(b"/"):
                if _matters(name, one, other):
                    yield Difference(prefix + name, one, other)
            elif not name.startswith(b"."):
                yield from self._below(one.id if one else b"", other.id if other else b"", prefix + name)

    def _tree_pieces(self, id_: bytes) -> set[bytes]:
        return set(_pieces(self._read(id_))) if id_ else set()

    def _count(self, entries: int, prefix: bytes) -> None:
        self._visited += entries
        if self._visited > MOST_ENTRIES:
            raise SourceError(f"the repository has more than {MOST_ENTRIES:,} files below the path; narrow the path")
        if prefix.count(b"/") > DEEPEST:
            raise SourceError(f"directories are nested more than {DEEPEST} deep below {prefix[:60]!r}")


def _matters(name: bytes, one: Entry | None, other: Entry | None) -> bool:
    return name.endswith(_MANIFEST) or any(entry is not None and entry.submodule for entry in (one, other))
