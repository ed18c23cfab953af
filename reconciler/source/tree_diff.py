"""Compares two trees; finds differences without reading equal parts."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

import msgspec

from reconciler.errors import SourceError
from reconciler.model.revision import SUFFIXES

DEEPEST = 64
MOST_ENTRIES = 2_200_000
"""Enough for two revisions of a million files that all differ, with their directories."""

CACHED_TREES, CACHED_BYTES = 8, 16 << 20
"""The limits of the cache of trees: the roots of the last commits, and recently read trees in them."""

_TREE, _LINK, _MODULE = b"40000", b"120000", b"160000"
_ENTRY = re.compile(rb"([0-7]+) ([^\0/]+)\0(.{20})", re.DOTALL)
_PIECE = re.compile(rb"(?>[0-7]+ [^\0/]+\0.{20}){1,32}+", re.DOTALL)
_MANIFEST = tuple(suffix.encode() for suffix in SUFFIXES)


class TreeEntry(msgspec.Struct, frozen=True, gc=False):
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
    before: TreeEntry | None
    after: TreeEntry | None


def parse_tree(content: bytes) -> dict[bytes, TreeEntry]:
    """The entries of a tree object by name, directories with a trailing slash. Raises SourceError if malformed."""
    _find_entry_ends(content)
    return _by_name(_ENTRY.findall(content))


def _find_entry_ends(content: bytes) -> list[int]:
    """Where every 32nd entry ends, and the last one. Raises SourceError if ``content`` is malformed."""
    ends = list(accumulate(map(len, _PIECE.findall(content))))
    # A tree that is only partly readable must not pass for a smaller one.
    if (ends[-1] if ends else 0) != len(content):
        raise SourceError("a tree object is malformed; run git fsck on the repository")
    return ends


def _by_name(entries: Iterable[tuple[bytes, ...]]) -> dict[bytes, TreeEntry]:
    return {name + b"/" if mode == _TREE else name: TreeEntry(mode, id_) for mode, name, id_ in entries}


class Tree(msgspec.Struct, frozen=True):
    """The bytes of a tree object, and where some of its entries end: in order, the last one included."""

    content: bytes
    ends: list[int]


class TreeChange(msgspec.Struct, frozen=True):
    """The entries of two trees around what differs, and the ``ends`` of the newer one."""

    left: bytes
    right: bytes
    ends: list[int]


class TreeReader:
    """Reads trees by ``read``, which returns a tree object's bytes for its raw id, and caches the last ones.

    An empty id means an empty tree.
    """

    def __init__(self, read: Callable[[bytes], bytes]) -> None:
        self._read = read
        self._cache: dict[bytes, bytes] = {}
        self._ends: dict[bytes, list[int]] = {}

    def content(self, id_: bytes) -> bytes:
        """The bytes of a tree, malformed ones too."""
        if not id_:
            return b""
        cached = self._cache.pop(id_, None)
        self._cache[id_] = content = self._read(id_) if cached is None else cached
        size = sum(map(len, self._cache.values()))
        while len(self._cache) > CACHED_TREES or (size > CACHED_BYTES and len(self._cache) > 1):
            oldest = next(iter(self._cache))
            size -= len(self._cache.pop(oldest))
            self._ends.pop(oldest, None)
        return content

    def read_changed(self, before: bytes, after: bytes) -> tuple[bytes, bytes]:
        """The entries of both trees around what differs. Raises SourceError if one is malformed.

        Parses only these: a folder is as wide as its users make it, and a commit changes few of its files.
        """
        content = self.content(before)
        ends = self._ends.get(before)
        old = Tree(content, _find_entry_ends(content) if ends is None else ends)
        change = _compare_tree(old, self.content(after))
        if after:
            self._ends[after] = change.ends
        return change.left, change.right


def _compare_tree(old: Tree, content: bytes) -> TreeChange:
    """What differs between ``old`` and the tree with the bytes ``content``."""
    prefix, suffix = _equal_ends(old.content, content)
    grown = len(content) - len(old.content)
    shared = bisect_right(old.ends, prefix)
    first = old.ends[shared - 1] if shared else 0
    later = bisect_left(old.ends, len(old.content) - suffix, lo=shared)
    last = old.ends[later] if later < len(old.ends) else len(old.content)
    try:
        between = _find_entry_ends(content[first : last + grown])
    except SourceError:
        # Here ends an entry of the old tree, and none of the new one, though all bytes from here on are equal.
        later, last = len(old.ends), len(old.content)
        between = _find_entry_ends(content[first:])
    ends = [*old.ends[:shared], *(first + end for end in between), *(end + grown for end in old.ends[later + 1 :])]
    return TreeChange(old.content[first:last], content[first : last + grown], ends)


def _equal_ends(one: bytes, other: bytes) -> tuple[int, int]:
    """The lengths of the longest prefix that both have, and of the longest suffix of what remains."""
    shorter = min(len(one), len(other))
    prefix = _find_equal_length(shorter, lambda low, high: one[low:high] == other[low:high])
    ends = len(one), len(other)
    suffix = _find_equal_length(
        shorter - prefix,
        lambda low, high: one[ends[0] - high : ends[0] - low] == other[ends[1] - high : ends[1] - low],
    )
    return prefix, suffix


def _find_equal_length(limit: int, equal: Callable[[int, int], bool]) -> int:
    """The largest number up to ``limit`` below which all is ``equal``; asks for each range once."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if equal(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


class Walk:
    """One comparison of the trees of ``reader``, by raw ids; an empty id means an empty tree.

    Limited to 64 levels of directories and 2,200,000 entries, since a few hundred bytes of Git objects can describe
    billions of files. Raises SourceError beyond these limits.
    """

    def __init__(self, reader: TreeReader) -> None:
        self._reader = reader
        self._visited = 0

    def differences(self, before: bytes, after: bytes) -> Iterator[Difference]:
        """Differing possible manifests (by suffix) and submodules, in path order, without dot-directories."""
        if before != after:
            yield from self._below(before, after, b"")

    def _below(self, before: bytes, after: bytes, prefix: bytes) -> Iterator[Difference]:
        old, new = (set(_ENTRY.findall(entries)) for entries in self._reader.read_changed(before, after))
        left, right = _by_name(old - new), _by_name(new - old)
        self._count(len(left) + len(right), prefix)
        for name in sorted(left.keys() | right.keys()):
            one, other = left.get(name), right.get(name)
            if not name.endswith(b"/"):
                if _is_relevant_entry(name, one, other):
                    yield Difference(prefix + name, one, other)
            elif not name.startswith(b"."):
                yield from self._below(one.id if one else b"", other.id if other else b"", prefix + name)

    def _count(self, entries: int, prefix: bytes) -> None:
        self._visited += entries
        if self._visited > MOST_ENTRIES:
            raise SourceError(f"the repository has more than {MOST_ENTRIES:,} files below the path; narrow the path")
        if prefix.count(b"/") > DEEPEST:
            raise SourceError(f"directories are nested more than {DEEPEST} deep below {prefix[:60]!r}")


def _is_relevant_entry(name: bytes, one: TreeEntry | None, other: TreeEntry | None) -> bool:
    return name.endswith(_MANIFEST) or any(entry is not None and entry.submodule for entry in (one, other))
