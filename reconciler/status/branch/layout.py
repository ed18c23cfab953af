"""Where the status file of a resource is: by GVC and kind, and in buckets where a directory has many entries.

A commit writes each directory on the way to a changed file anew, so its cost grows with their width. Git's notes have
the same form for the same reason.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import unquote

import pygit2
from pygit2.enums import FileMode

from reconciler.model.key import Key, Kind
from reconciler.source.libgit import lookup_name

ORG_DIRECTORY = "_org"

MOST_ENTRIES = 512
"""A directory with more entries than this is divided into buckets. It remains divided as long as it exists."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._@+-]|^\.")
_BUCKET = re.compile(rb"_[0-9a-f]{2}")
_KINDS = frozenset(kind.encode() for kind in Kind)


class _Segments(NamedTuple):
    """The segments of a path without buckets."""

    top: str
    kind: str
    file: str


class StatusLayout:
    """The paths of status files after a commit on top of ``tree`` (None: empty) that writes those of ``keys``.

    The commit divides the directories ``divided``, in this order.
    """

    def __init__(self, tree: pygit2.Tree | None, keys: Iterable[Key] = ()) -> None:
        self._tree = tree
        self._known: dict[str, bool] = {}
        folders: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for key in keys:
            top, kind, file = _get_path_segments(key)
            folders[top, kind].add(file)
        tops = {top for top, _ in folders if top != ORG_DIRECTORY}
        self.divided: list[str] = []
        if tops:
            self._divide("", "", tops)
        for (top, kind), files in folders.items():
            self._divide(f"{self._top(top)}/{kind}", f"{top}/{kind}", files)

    def path(self, key: Key) -> str:
        """The path of the status file of ``key``: ``shop/workload/api.yaml``, or ``shop/workload/_3f/api.yaml``."""
        top, kind, file = _get_path_segments(key)
        folder = f"{self._top(top)}/{kind}"
        return f"{folder}/{_bucket_of(file)}/{file}" if self._is_divided(folder) else f"{folder}/{file}"

    def _top(self, top: str) -> str:
        return f"{_bucket_of(top)}/{top}" if top != ORG_DIRECTORY and self._is_divided("") else top

    def _is_divided(self, folder: str) -> bool:
        if folder not in self._known:
            self._known[folder] = _has_buckets(_tree_at(self._tree, folder))
        return self._known[folder]

    def _divide(self, folder: str, undivided: str, names: Collection[str]) -> None:
        """Divide ``folder``, which is at ``undivided`` before this commit, if it gets too many entries or has buckets.

        One that has buckets may have files beside them too, from before it was divided.
        """
        tree = _tree_at(self._tree, folder) or _tree_at(self._tree, undivided)
        wide = _has_buckets(tree)
        if not wide and len(tree or ()) + len(names) > MOST_ENTRIES:
            present = {entry.raw_name for entry in tree or ()}
            wide = len(present.union(name.encode() for name in names)) > MOST_ENTRIES
        self._known[folder] = wide
        if wide:
            self.divided.append(folder)


def list_keys(tree: pygit2.Tree | None, above: tuple[str, ...] = ()) -> Iterator[Key]:
    """The keys whose status files are in ``tree``, and none of the files of others."""
    for entry in tree or ():
        name = entry.name or ""
        if isinstance(entry, pygit2.Tree):
            yield from list_keys(entry, above if _is_bucket(entry) else (*above, name))
        elif len(above) == 2 and above[1].encode() in _KINDS and name.endswith(".yaml"):
            gvc = "" if above[0] == ORG_DIRECTORY else unquote(above[0])
            yield Key(Kind(above[1]), gvc, unquote(name.removesuffix(".yaml")))


def divide_tree(git: pygit2.Repository, tree: pygit2.Tree, folders: Iterable[str]) -> pygit2.Tree:
    """``tree`` with the status files of ``folders`` in buckets; files and directories of others stay."""
    for folder in folders:
        changed = git[_divided_below(git, tree, folder.split("/") if folder else [])]
        assert isinstance(changed, pygit2.Tree)
        tree = changed
    return tree


def _divided_below(git: pygit2.Repository, tree: pygit2.Tree, names: list[str]) -> pygit2.Oid:
    if not names:
        return _divide_entries(git, tree)
    name, *rest = names
    below = _tree_at(tree, name)
    if below is None:
        return tree.id
    after = _divided_below(git, below, rest)
    if after == below.id:
        return tree.id
    builder = git.TreeBuilder(tree)
    builder.insert(name, after, FileMode.TREE)
    return builder.write()


def _divide_entries(git: pygit2.Repository, tree: pygit2.Tree) -> pygit2.Oid:
    buckets: defaultdict[str, list[pygit2.Tree | pygit2.Blob]] = defaultdict(list)
    present = _find_underscored_range(tree)
    others = (tree[index] for index in (*range(present.start), *range(present.stop, len(tree))))
    for entry in filter(_is_status, others):
        assert entry.name is not None
        buckets[_bucket_of(entry.name)].append(entry)
    if not buckets:
        return tree.id
    builder = git.TreeBuilder(tree)
    for bucket, entries in buckets.items():
        old = _tree_at(tree, bucket)
        below = git.TreeBuilder() if old is None else git.TreeBuilder(old)
        for entry in entries:
            assert entry.name is not None
            below.insert(entry.name, entry.id, FileMode(entry.filemode))
            builder.remove(lookup_name(entry.name))
        builder.insert(bucket, below.write(), FileMode.TREE)
    return builder.write()


def _is_status(entry: pygit2.Object) -> bool:
    """Whether ``entry`` of a wide directory is a status file or the directory of a GVC, and not a file of others."""
    name = entry.raw_name or b""
    if not isinstance(entry, pygit2.Tree):
        return name.endswith(b".yaml") and name != b"reconciler.yaml"
    return not name.startswith((b"_", b".")) and all(below.raw_name in _KINDS for below in entry)


def _has_buckets(tree: pygit2.Tree | None) -> bool:
    return tree is not None and any(_is_bucket(tree[index]) for index in _find_underscored_range(tree))


def _find_underscored_range(tree: pygit2.Tree) -> range:
    """The places of the entries whose names start with ``_``, as those of buckets do; Git sorts entries by name.

    Each commit needs them in each directory on its way, and pygit2 makes an object of each entry that is read.
    """
    places = range(len(tree))
    first, after = (bisect_left(places, sign, key=lambda index: _raw_name(tree[index])) for sign in (b"_", b"`"))
    return range(first, after)


def _raw_name(entry: pygit2.Object) -> bytes:
    return entry.raw_name or b""


def _is_bucket(entry: pygit2.Object) -> bool:
    return isinstance(entry, pygit2.Tree) and _BUCKET.fullmatch(_raw_name(entry)) is not None


def _tree_at(tree: pygit2.Tree | None, folder: str) -> pygit2.Tree | None:
    for name in folder.split("/") if folder else ():
        below = tree[lookup_name(name)] if tree is not None and lookup_name(name) in tree else None
        tree = below if isinstance(below, pygit2.Tree) else None
    return tree


def _get_path_segments(key: Key) -> _Segments:
    return _Segments(
        _escape_segment(key.gvc) if key.gvc else ORG_DIRECTORY, key.kind.value, f"{_escape_segment(key.name)}.yaml"
    )


def _bucket_of(name: str) -> str:
    return f"_{blake2b(name.encode(), digest_size=1).hexdigest()}"


def _escape_segment(name: str) -> str:
    """``name`` as one path segment; names of applied resources are already safe and stay unchanged."""
    return _UNSAFE.sub(lambda sign: "".join(f"%{byte:02X}" for byte in sign[0].encode()), name)
