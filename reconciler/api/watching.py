"""Changes for those who watch resources: one reader for all of them, and a bounded queue for each."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from reconciler.access.rules import AccessRules, Body, Caller, Visibility
from reconciler.api.documents import removed_document, resource_document
from reconciler.api.problems import Problem, problem_of
from reconciler.api.reading import Reader, body_of
from reconciler.bugs import internal_error
from reconciler.errors import ReconcilerError
from reconciler.model.key import Key, Kind
from reconciler.records.tables.status_queue import StatusChange

POLL = 0.05
"""Seconds between two checks for changes while somebody watches; without a change, one costs microseconds."""
BATCH = 500
"""Changes that are read at once."""
MOST_EVENTS = 1000
"""Events that wait for a client. With more, at its start or later, a list costs less than the events do."""
ADDED, MODIFIED, DELETED = "added", "modified", "deleted"
GONE = "the events since then are no longer known: list again, and watch from there"
SLOW = "this client reads its events too slowly: list again, and watch from there"
REVOKED = "what this caller may view has changed: list again, and watch from there"


class WatchScope(NamedTuple):
    """What is watched: the resources of one kind whose keys begin with ``prefix``, or the one ``key``."""

    prefix: str
    key: Key | None = None

    def includes(self, key: str) -> bool:
        """Whether ``key`` is watched."""
        return key == self.prefix if self.key is not None else key.startswith(self.prefix)


class Changed:
    """A resource before and after its changes up to ``number``: its manifests, None where it did not exist.

    ``document`` is what a list shows now, None after a deletion.
    """

    def __init__(
        self, number: int, key: Key, before: Body | None, after: Body | None, document: dict[str, Any] | None
    ) -> None:
        self.number = number
        self.key = key
        self._before = before
        self._after = after
        self._document = document
        self._events: dict[str, bytes] = {}

    def event(self, visible: Visibility, org: str) -> bytes:
        """The event for a client that may see what ``visible`` includes, b"" if it may see nothing of it."""
        before, after = self._before, self._after
        seen = before is not None and visible.includes(self.key, lambda: before)
        sees = after is not None and visible.includes(self.key, lambda: after)
        if not seen and not sees:
            return b""
        kind = DELETED if not sees else MODIFIED if seen else ADDED
        if kind not in self._events:
            shown = removed_document(self.key, before or {}, org) if kind == DELETED else self._document
            self._events[kind] = encode_event(self.number, kind, shown)
        return self._events[kind]


class Watcher:
    """The queue of one client, which watches ``scope`` and may see what ``visible`` includes."""

    def __init__(self, caller: Caller, scope: WatchScope, visible: Visibility, after: int) -> None:
        self.caller = caller
        self.scope = scope
        self.visible = visible
        self.after = after
        self.news = asyncio.Event()
        self.ended = False
        self.problem: Problem | None = None
        self._events: deque[bytes] = deque()

    def skip(self, number: int) -> None:
        """Leave out changes up to ``number``."""
        self.after = max(self.after, number)

    def offer(self, changed: Changed, org: str) -> None:
        """Queue what the client may see of ``changed``."""
        if changed.number <= self.after or self.ended:
            return
        content = changed.event(self.visible, org)
        if not content:
            return
        if len(self._events) >= MOST_EVENTS:
            self.end(Problem(410, SLOW))
            return
        self._events.append(content)
        self.news.set()

    def take(self) -> bytes:
        """The events that wait, b"" without any."""
        self.news.clear()
        content = b"".join(self._events)
        self._events.clear()
        return content

    def end(self, problem: Problem | None) -> None:
        """Let no event follow; ``problem`` is for the client."""
        if not self.ended:
            self.ended, self.problem = True, problem
            self.news.set()


class ChangeFeed:
    """Reads changes while there are watchers, and offers each to those that watch its resource."""

    def __init__(self, make_reader: Callable[[], Reader], org: str) -> None:
        self._make_reader = make_reader
        self._org = org
        self._reader: Reader | None = None
        self.watchers: set[Watcher] = set()
        self._rules: AccessRules | None = None
        self._running: asyncio.Task[None] | None = None
        self._reached = 0
        self.position = 0
        """The number of the last change that was offered to watchers; those up to ``_reached`` are being read."""

    async def open(self, watcher: Watcher) -> list[bytes]:
        """Begin to serve ``watcher``; returns the events between its start and now. Raises Problem 410."""
        if self._reader is None:
            self._reader = self._make_reader()
        if self._running is None or self._running.done():
            self.position = self._reached = self._reader.records.changes.newest()
            self._running = asyncio.create_task(self._run(self._reader), name="changes of resources")
        self.watchers.add(watcher)
        start, end = watcher.after, self._reached
        # A list can be newer than what was read here: the watcher leaves out what that has shown.
        watcher.skip(end)
        try:
            return await asyncio.to_thread(self._read_missed, watcher, start, end)
        except BaseException:
            self.leave(watcher)
            raise

    def leave(self, watcher: Watcher) -> None:
        """End to serve ``watcher``."""
        self.watchers.discard(watcher)

    def close(self) -> None:
        """End every stream; clients come back with the id of their last event. May be repeated."""
        self._end_all(None)
        if self._running is not None:
            self._running.cancel()
        if self._reader is not None:
            self._reader.close()

    def _read_missed(self, watcher: Watcher, start: int, end: int) -> list[bytes]:
        reader = self._make_reader()
        try:
            if not reader.records.changes.has_all_after(start):
                raise Problem(410, GONE)
            rows: list[StatusChange] = []
            position = start
            while position < end and (batch := reader.records.changes.after(position, BATCH)):
                rows += [change for change in batch if change.number <= end and watcher.scope.includes(change.key)]
                position = batch[-1].number
            if len({row.key for row in rows}) > MOST_EVENTS:
                raise Problem(410, GONE)
            events = (changed.event(watcher.visible, self._org) for changed in self._read(reader, rows))
            return [event for event in events if event]
        finally:
            reader.close()

    async def _run(self, reader: Reader) -> None:
        """Read changes as long as somebody watches."""
        version = -1
        try:
            while self.watchers:
                if (latest := reader.records.data_version()) != version:
                    version = latest
                    self._end_revoked(reader)
                    await self._forward(reader)
                await asyncio.sleep(POLL)
        except Exception as error:  # noqa: BLE001 - the watches end with the reason, and others can begin
            self._end_all(problem_of(error))
            if not isinstance(error, ReconcilerError):
                internal_error(error, "watches")

    async def _forward(self, reader: Reader) -> None:
        while rows := reader.records.changes.after(self.position, BATCH):
            if rows[0].number != self.position + 1:
                self._end_all(Problem(410, GONE))
            self._reached = rows[-1].number
            groups: defaultdict[WatchScope, list[Watcher]] = defaultdict(list)
            for watcher in self.watchers:
                groups[watcher.scope].append(watcher)
            watched = [row for row in rows if any(scope.includes(row.key) for scope in groups)]
            # A document costs a tenth of a millisecond, and requests do not wait for hundreds of them.
            changeds = await asyncio.to_thread(self._read, reader, watched) if watched else []
            for scope, watchers in groups.items():
                self._offer([changed for changed in changeds if scope.includes(str(changed.key))], watchers)
            self.position = self._reached

    def _offer(self, changeds: Iterable[Changed], watchers: Iterable[Watcher]) -> None:
        for changed in changeds:
            for watcher in watchers:
                watcher.offer(changed, self._org)

    def _end_revoked(self, reader: Reader) -> None:
        """End the watches of callers who may no longer view all that they could, or may view more."""
        rules = reader.access()
        if rules is self._rules:
            return
        self._rules = rules
        visible: dict[tuple[Caller, str], Visibility] = {}
        for watcher in self.watchers:
            kind = watcher.scope.prefix.partition("/")[0]
            if (watcher.caller, kind) not in visible:
                visible[watcher.caller, kind] = rules.visibility(watcher.caller, Kind(kind))
            if visible[watcher.caller, kind] != watcher.visible:
                watcher.end(Problem(410, REVOKED))

    def _end_all(self, problem: Problem | None) -> None:
        for watcher in self.watchers:
            watcher.end(problem)

    def _read(self, reader: Reader, rows: Sequence[StatusChange]) -> list[Changed]:
        """What became of each resource in ``rows``, in order of its last change."""
        with reader.snapshot():
            return list(_merge_changes(reader, rows, self._org))


def encode_event(number: int, kind: str, document: Any) -> bytes:
    """A server-sent event; its id is the number of the last change that it shows."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind.encode(), msgspec.json.encode(document))


def _merge_changes(reader: Reader, rows: Iterable[StatusChange], org: str) -> Iterator[Changed]:
    first: dict[str, bytes] = {}
    last: dict[str, int] = {}
    for row in rows:
        if row.before is not None:
            first.setdefault(row.key, row.before)
        last.pop(row.key, None)
        last[row.key] = row.number
    applied = reader.records.applied
    records, created = applied.get_many(last), applied.creation_times(last)
    facts = reader.facts()
    facts.expect_applied(last, records)
    for text, number in last.items():
        key, present = Key.parse(text), records.get(text)
        after = body_of(present[0]) if present else None
        before = after if text not in first else msgspec.json.decode(first[text]) if first[text] else None
        if before is not None or after is not None:
            document = resource_document(facts.facts(key), created[text], org, encoded=True) if present else None
            yield Changed(number, key, before, after, document)
