"""Determines the ancestry of commits from their bytes alone.

Grafts, replacements, shallow files and commit graphs are repository files that anybody with access can write; a
commit's id, and a signature, cover only the commit's own bytes.
"""

from __future__ import annotations

import heapq
import re

import msgspec
import pygit2
from pygit2.enums import ObjectType

OVERRUN = 1_000
"""Commits to visit beyond the point where dates indicate completeness, since committers' clocks may be wrong."""

_HEADER = re.compile(rb"tree [0-9a-f]{40}\n((?:parent [0-9a-f]{40}\n)*)")
_TIME = re.compile(rb"^committer [^\n]*> (-?\d{1,18})", re.MULTILINE)


class CommitLinks(msgspec.Struct, frozen=True):
    """The parent ids of a commit, and the time that its committer wrote, in seconds since the epoch."""

    parents: tuple[str, ...]
    time: int


def read_links(objects: pygit2.Odb, commit: str) -> CommitLinks:
    """The links of ``commit``. Raises KeyError if it is missing and ValueError if it is no valid commit."""
    kind, content = objects.read(commit)
    match = _HEADER.match(content) if kind == ObjectType.COMMIT else None
    if match is None:
        raise ValueError(f"{commit} is not a commit that can be read")
    time = _TIME.search(content, match.end())
    return CommitLinks(tuple(line[7:].decode() for line in match[1].splitlines()), int(time[1]) if time else 0)


def is_ancestor(objects: pygit2.Odb, older: str, newer: str) -> bool:
    """Whether ``older`` is ``newer`` or one of its ancestors. Exact: False means that all ancestors were visited.

    Missing commits end the history: a shallow clone ends there. Raises KeyError if ``newer`` is missing, ValueError for
    a damaged commit.
    """
    links = read_links(objects, newer)
    queue = [(-links.time, newer, links.parents)]
    seen = {newer}
    while queue:
        _, commit, parents = heapq.heappop(queue)
        if older == commit or older in parents:
            return True
        for parent in parents:
            if parent not in seen and parent in objects:
                seen.add(parent)
                links = read_links(objects, parent)
                heapq.heappush(queue, (-links.time, parent, links.parents))
    return False


def commits_since(objects: pygit2.Odb, previous: str, newest: str) -> list[str]:
    """The ancestors of ``newest``, itself included, that are not ancestors of ``previous``, oldest first.

    A commit is omitted only if real links lead to it from ``previous``. If the clocks of committers differ widely, an
    ancestor of ``previous`` may be listed. Raises KeyError if a listed commit has a missing parent, ValueError for a
    damaged commit.
    """
    walk = _Walk(objects)
    walk.reach(previous, old=True)
    walk.reach(newest, old=False)
    overrun = 0
    while walk.queue and overrun < OVERRUN:
        overrun = 0 if walk.pending else overrun + 1
        if not walk.pending and walk.is_chain_from(previous):
            break
        walk.step()
    return list(reversed(walk.found))


class _Walk:
    """Walks commits from the newest date down; each is ``old`` (an ancestor of the previous commit) or found."""

    def __init__(self, objects: pygit2.Odb) -> None:
        self.objects = objects
        self.queue: list[tuple[int, str]] = []
        self.old: set[str] = set()
        self.found: dict[str, tuple[str, ...]] = {}
        self.times: dict[str, int] = {}
        self.pending = 0
        self._queued: set[str] = set()

    def reach(self, commit: str, *, old: bool) -> None:
        """Queue ``commit`` unless its state is known; a found commit that turns out to be old is queued again."""
        if commit in self.old or (not old and commit in self.times):
            return
        if old and commit not in self.objects:
            return
        self.times[commit] = read_links(self.objects, commit).time
        if old:
            self.old.add(commit)
            if self.found.pop(commit, None) is None and commit in self._queued:
                self.pending -= 1
                return
        else:
            self.pending += 1
        self._queued.add(commit)
        heapq.heappush(self.queue, (-self.times[commit], commit))

    def step(self) -> None:
        """Visit the newest commit of the queue."""
        commit = heapq.heappop(self.queue)[1]
        self._queued.discard(commit)
        parents = read_links(self.objects, commit).parents
        old = commit in self.old
        if not old:
            self.pending -= 1
            self.found[commit] = parents
        for parent in parents:
            self.reach(parent, old=old)

    def is_chain_from(self, previous: str) -> bool:
        """Whether the found commits form a linear history on top of ``previous``, which cannot contain any of them."""
        first = [parents for parents in self.found.values() if parents == (previous,)]
        return len(first) == 1 and all(len(parents) == 1 for parents in self.found.values())
