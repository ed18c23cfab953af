"""Finds lines in the logs of the pods at a location: existing lines, newest first, then new lines.

A cluster has the logs of existing pods alone: of each container the present run and the one before.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.engines.kubernetes.client.objects import POD
from reconciler.engines.kubernetes.reading.connections import FOR_ALL, ask_cluster, gather_answers
from reconciler.engines.kubernetes.reading.log_pages import (
    FIRST_TAIL,
    GROWTH,
    LogLocator,
    LogPage,
    LogPosition,
    RawLine,
    find_position,
    read_last_page,
    read_new_lines,
    read_page,
)
from reconciler.engines.kubernetes.reading.pods import ClusterLocation, WorkloadPod, list_pods
from reconciler.engines.kubernetes.status.fields import read_items, read_mapping, read_number, read_text
from reconciler.engines.kubernetes.status.pods import list_parts
from reconciler.engines.reading import ALWAYS, LogLine, LogSelection, LogSpan, LogStream

POLLS_A_SECOND = 20.0
"""Requests a second for new lines: with more containers, each is asked less often."""
LIST_SECONDS = 1.0
"""Seconds between two looks for new pods, at least; the time that a look takes is a twentieth of them at most."""
RETRY_SECONDS = 5.0
"""Seconds until a cluster that does not answer is asked again."""
PATIENCE_SECONDS = 60.0
"""Seconds without any answer after which it is an error that there are no new lines."""

_MILLISECOND = 10**6


class ContainerLog(msgspec.Struct, frozen=True):
    """A container with a log: the present run, and ``restarted`` the one before; ``restarts`` are all before it."""

    stream: LogStream
    locator: LogLocator
    restarts: int = 0
    restarted: bool = False


class _LineBlock:
    """Lines that a selection chooses from."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines

    def text(self) -> bytes:
        """The lines in one."""
        return b"".join(b"%b\n" % line for line in self._lines)

    def lines(self, text: bytes | None = None) -> Sequence[bytes]:
        """The lines; ``text`` is what ``text`` returned."""
        return self._lines if text is None else text.split(b"\n")[:-1]


class _Following(msgspec.Struct, frozen=True):
    """How far the log of a container was read; ``page`` is what it ended with when the search was made.

    ``restarts`` is how often the container had restarted then, and ``searched`` what was looked for in its last run.
    """

    log: ContainerLog
    page: LogPage = LogPage()
    position: LogPosition | None = None
    restarts: int = -1
    searched: LogPosition | None = None


def list_container_logs(pods: Iterable[WorkloadPod], location: str) -> list[ContainerLog]:
    """The containers of ``pods`` that have a log, ordered by stream."""
    return sorted((log for pod in pods for log in _list_logs_of_pod(pod, location)), key=lambda log: log.stream)


def _list_logs_of_pod(pod: WorkloadPod, location: str) -> Iterator[ContainerLog]:
    statuses = {read_text(status, "name"): status for status in read_items(pod.part, "status", "containerStatuses")}
    path = f"{POD.path(pod.namespace, pod.name)}/log"
    for container in list_parts(pod.part, frozenset()):
        name = read_text(container, "name")
        status = statuses.get(name, {})
        state, last = read_mapping(status, "state"), read_mapping(status, "lastState", "terminated")
        if last or "running" in state or "terminated" in state:
            stream = LogStream(pod.key.gvc, pod.key.name, pod.name, name, location)
            yield ContainerLog(stream, LogLocator(path, name), read_number(status, "restartCount"), bool(last))


class ClusterLogSearch:
    """Lines of the containers at ``location`` that ``selection`` takes.

    ``backward`` yields lines that existed when this object was created, ``more`` returns those since the last call. The
    log of a pod whose node does not answer is left out. All methods raise EngineError.
    """

    def __init__(self, location: ClusterLocation, selection: LogSelection) -> None:
        self._location = location
        self._selection = selection
        self._chosen: dict[LogStream, bool] = {}
        self._followed: dict[LogStream, _Following] = {}
        self._next_list = self._next_poll = 0.0
        ask_cluster(location.cluster, self._begin)
        self._answered = time.monotonic()

    def backward(self, span: LogSpan = ALWAYS) -> Iterator[LogLine]:
        """Lines within ``span``, newest first. Only one page of each container is in memory at a time."""
        ends = [(following.log, following.page) for _, following in sorted(self._followed.items())]
        logs = [self._iterate_log(log, page, span) for log, page in ends]
        return heapq.merge(*logs, key=lambda line: -line.ms)

    def more(self) -> list[LogLine]:
        """The lines since the last call, oldest first; none while the cluster need not be asked again yet."""
        now = time.monotonic()
        if now < self._next_poll:
            return []
        try:
            lines = ask_cluster(self._location.cluster, self._read_more)
        except ClusterError as error:
            # Nothing is lost: the next call reads from where the last one ended.
            if error.reason in FOR_ALL or now - self._answered > PATIENCE_SECONDS:
                raise
            # Logs of other places need not wait for this one.
            self._next_poll = time.monotonic() + RETRY_SECONDS
            return []
        self._answered = time.monotonic()
        self._next_poll = self._answered + len(self._followed) / POLLS_A_SECOND
        return sorted(lines, key=lambda line: (line.ms, line.stream))

    async def _begin(self, api: KubeApi) -> None:
        logs = await self._list_logs(api)
        pages = await gather_answers([read_last_page(api, log.locator) for log in logs])
        for log, page in zip(logs, pages, strict=True):
            page = page or LogPage()
            self._followed[log.stream] = _Following(log, page, find_position(page.lines), log.restarts)

    async def _list_logs(self, api: KubeApi) -> list[ContainerLog]:
        """The selected containers that have a log."""
        begun = time.monotonic()
        logs = list_container_logs(await list_pods(api, self._location), self._location.name)
        ended = time.monotonic()
        self._next_list = ended + max(LIST_SECONDS, 20 * (ended - begun))
        for log in logs:
            if log.stream not in self._chosen:
                self._chosen[log.stream] = self._selection.streams(log.stream.labels())
        return [log for log in logs if self._chosen[log.stream]]

    def _iterate_log(self, log: ContainerLog, page: LogPage, span: LogSpan) -> Iterator[LogLine]:
        first, ms = 1 << 90, span.until
        for previous in (False, True)[: 1 + log.restarted]:
            limit = first
            for lines in self._iterate_pages(log, None if previous else page, span, previous=previous):
                # The present run may have become the previous one meanwhile: what was shown is not shown again.
                older = [line for line in lines if not previous or line.ns < limit]
                selected = [line for line in older if span.since <= line.ns // _MILLISECOND <= span.until]
                for line in reversed(self._select(sorted(selected, key=lambda line: line.ns), log.stream)):
                    # Two outputs of a container can have times in another order than their lines.
                    ms = min(ms, line.ms)
                    yield line._replace(ms=ms)
                first = min(first, *(line.ns for line in lines))

    def _iterate_pages(
        self, log: ContainerLog, page: LogPage | None, span: LogSpan, *, previous: bool
    ) -> Iterator[Sequence[RawLine]]:
        """The lines of one run, each time older ones; ``page`` is the newest if it was read already."""
        tail, before = FIRST_TAIL, None
        while True:
            if page is None:
                read = partial(
                    read_page,
                    locator=log.locator,
                    tail=tail,
                    before=before,
                    since=span.since / 1000,
                    previous=previous,
                )
                page = self._read_alone(read)
            if page.lines:
                yield page.lines
                before = page.lines[0].ns
            if page.whole or (before is not None and before // _MILLISECOND < span.since):
                return
            tail, page = tail * GROWTH, None

    def _read_alone(self, read: partial[Any]) -> LogPage:
        """A page of one log, which is at its end where it cannot be read."""

        async def read_one(api: KubeApi) -> LogPage | None:
            [page] = await gather_answers([read(api)])
            return page

        with suppress(ClusterError):
            return ask_cluster(self._location.cluster, read_one) or LogPage()
        return LogPage()

    async def _read_more(self, api: KubeApi) -> list[LogLine]:
        if time.monotonic() >= self._next_list:
            self._follow_new(await self._list_logs(api))
        followed = list(self._followed.values())
        parts = await gather_answers([self._read_since(api, following) for following in followed])
        return [line for part in parts for line in part or ()]

    def _follow_new(self, logs: Sequence[ContainerLog]) -> None:
        """Follow ``logs``, and no others: those of deleted pods are gone."""
        before, self._followed = self._followed, {}
        for log in logs:
            self._followed[log.stream] = msgspec.structs.replace(before.get(log.stream) or _Following(log), log=log)

    async def _read_since(self, api: KubeApi, following: _Following) -> list[LogLine]:
        """The new lines of a container: those of the run before too, if the container has restarted."""
        log, position = following.log, following.position
        new = await read_new_lines(api, log.locator, position)
        lines = list(new.lines)
        if position is None:
            restarted = log.restarted and log.restarts > following.restarts
        else:
            restarted = not new.connected and following.searched != position
        if restarted:
            earlier = await read_new_lines(api, log.locator, position, previous=True)
            # While a container waits for its restart, both are the same run.
            lines = [line for line in earlier.lines if not lines or line.ns < lines[0].ns] + lines
        after = position.move(lines) if position is not None else find_position(lines)
        self._followed[log.stream] = msgspec.structs.replace(
            following, position=after, restarts=log.restarts, searched=position
        )
        return self._select(lines, log.stream)

    def _select(self, lines: Sequence[RawLine], stream: LogStream) -> list[LogLine]:
        """The selected ones of ``lines``, in their order."""
        labels = stream.labels()
        texts = [line.text for line in lines]
        selected = len(self._selection.lines(_LineBlock(texts), labels))
        if selected == len(texts):
            return [LogLine(line.ns // _MILLISECOND, stream, text) for line, text in zip(lines, texts, strict=True)]
        if not selected:
            return []
        groups = (
            (ms, [line.text for line in group]) for ms, group in groupby(lines, lambda line: line.ns // _MILLISECOND)
        )
        return [
            LogLine(ms, stream, text)
            for ms, group in groups
            for text in self._selection.lines(_LineBlock(group), labels)
        ]
