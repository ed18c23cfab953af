"""What all requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from reconciler.access.refusals import Refusals
from reconciler.access.store import AccessStore
from reconciler.api.authentication import Authenticator, write_bootstrap
from reconciler.api.oidc.logins import TokenIssuers, logins_of
from reconciler.api.page.state import PageState
from reconciler.api.problems import Problem
from reconciler.api.proxies.trusted import TrustedProxies
from reconciler.api.rate_limits import Admission, RateLimit
from reconciler.api.reading import Reader, RulesCache
from reconciler.api.watching import ChangeFeed
from reconciler.api.webhooks import Webhooks
from reconciler.changes.writers import SourceWriters
from reconciler.clock import Clock
from reconciler.daemon.measurements import Measurements
from reconciler.daemon.wake import wake_daemon
from reconciler.errors import RecordsError
from reconciler.model.key import Kind
from reconciler.queries.top import ReplicaReader
from reconciler.settings import Settings
from reconciler.settings.api import ApiSettings

if TYPE_CHECKING:
    from reconciler.engines.reading import LogStream

GIT_THREADS = 8
"""Changes that are made at once, each in its own source."""
LISTS, OVERVIEWS = 4, 2
"""Lists and overviews that are read at once; others wait. No overview, which may take seconds, delays a list."""
LONGEST_TURN = 30.0
"""Seconds that a change waits for others in the same source, such as on a slow remote."""
GATHER_SECONDS = 0.03
"""Seconds that changes are gathered after several were written together."""
MOST_STREAMS = 20_000
"""The most streams of logs whose labels complete a query."""
MOST_TOGETHER = 32
"""Changes that one push has at most."""
_RETRY_AFTER = "5"
WriteAll = Callable[[list[Any]], list[Any]]
"""Writes changes, in a thread; returns what became of each: a value, or an error."""


_WITH_CREDENTIALS = (Kind.AGENT, Kind.SERVICEACCOUNT, Kind.USER)


class ChangeQueue:
    """Changes of one source that wait for their turn; those that wait at the same time are written together."""

    def __init__(self, executor: Executor, write: WriteAll) -> None:
        self._executor = executor
        self._write = write
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: Any) -> Any:
        """What becomes of ``request``. Raises Problem if others take too long; nothing was changed then."""
        entry = (request, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_waiting())
        try:
            async with asyncio.timeout(LONGEST_TURN):
                return await asyncio.shield(entry[1])
        except TimeoutError:
            if entry not in self._waiting:  # it is being written, which ends by itself
                return await asyncio.shield(entry[1])
            self._waiting.remove(entry)
            message = "other changes of the source take too long; nothing was changed, try again"
            raise Problem(503, message, headers={"Retry-After": _RETRY_AFTER}) from None
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            raise

    async def _write_waiting(self) -> None:
        while self._waiting:
            entries, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
            requests = [request for request, _ in entries]
            try:
                outcomes = await asyncio.get_running_loop().run_in_executor(self._executor, self._write, requests)
            except Exception as error:  # noqa: BLE001 - each request reports it
                outcomes = [error] * len(entries)
            for (_, future), outcome in zip(entries, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)
            if len(entries) > 1:
                # Those who write again do so now: the first of them would have a push of its own.
                await asyncio.sleep(GATHER_SECONDS)


def _make_wake(settings: Settings) -> Callable[[str], bool]:
    """Lets the daemon run a source that a webhook names."""
    return partial(wake_daemon, settings.state, reason="webhook")


class Api:
    """The settings, the records, and the credentials; ``is_alive`` is whether the daemon's loop turns.

    ``refusal`` says why it does not listen at its address, such as ``Address already in use``; "" where it does.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        is_alive: Callable[[], bool],
        measured: Callable[[], Measurements] = Measurements,
        refusal: str = "",
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.is_alive = is_alive
        self.measured = measured
        self.refusal = refusal
        self._rules = RulesCache(settings.org)
        self.reader = self.new_reader()
        self.store = AccessStore.open(settings.state, clock, self.reader.records.applied.created_at)
        self._lives_at = -1
        self._prepare_store()
        self.refusals = Refusals(self.store.append_audit, clock.monotonic)
        options = settings.api or ApiSettings()
        self.webhooks = Webhooks(options.webhooks, _make_wake(settings), clock.monotonic)
        self.changes = ChangeFeed(self.new_reader, settings.org)
        self.list_slots, self.overview_slots = asyncio.Semaphore(LISTS), asyncio.Semaphore(OVERVIEWS)
        self.streams = Admission("read logs or follow events")
        self.overviews = Admission("read overviews")
        self.git_threads = ThreadPoolExecutor(GIT_THREADS, "git")
        """Threads for what waits for remotes, of which a slow forge may block all: reads have others."""
        self.writers = SourceWriters(settings, clock)
        self.replicas = ReplicaReader(settings)
        self._readers: list[Reader] = []
        self._change_queues: dict[str, ChangeQueue] = {}
        self._answer_locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self.address_limit = RateLimit("this address", options.rate_limits.address, clock.monotonic)
        self.caller_limit = RateLimit("this caller", options.rate_limits.caller, clock.monotonic)
        self.proxies = TrustedProxies(options.trusted_proxies)
        self.authenticator = Authenticator(self.store, settings, self.reader.records, clock)
        self.logins = logins_of(settings.api, clock)
        self.issuers = TokenIssuers(settings.api, clock)
        self.page = PageState(self._read_page_version, self._list_log_streams, clock)

    def _prepare_store(self) -> None:
        """End what former accounts left, and write the first token where nobody has a credential."""
        with suppress(RecordsError):  # a former account has no valid credential meanwhile, and it is tried again
            self.end_former_lives()
        if self.settings.api is not None:
            write_bootstrap(self.store, self.settings.state)

    def _read_page_version(self) -> int:
        """A number that changes with what open pages show: the records, and whether the daemon answers."""
        return 2 * self.reader.records.data_version() + self.is_alive()

    def _list_log_streams(self) -> list[LogStream]:
        from reconciler.queries.logs import list_log_streams

        return list_log_streams(self.settings, MOST_STREAMS)

    def end_former_lives(self) -> None:
        """Delete the credentials of accounts that were deleted since the last call. Raises RecordsError."""
        changes = self.reader.records.changes
        newest = changes.newest()
        if newest == self._lives_at:
            return
        is_known = self._lives_at >= 0 and changes.has_all_after(self._lives_at)
        if not is_known or changes.list_edited(self._lives_at, _WITH_CREDENTIALS):
            self.store.end_former_lives()
        self._lives_at = newest

    def new_reader(self) -> Reader:
        """A reader for one thread, which closes it."""
        return Reader(self.settings, self.clock, self._rules)

    def borrow_reader(self) -> Reader:
        """A reader for one thread; at most as many are in use as lists and overviews are read at once."""
        return self._readers.pop() if self._readers else self.new_reader()

    def return_reader(self, reader: Reader) -> None:
        """End the use of a reader that was borrowed."""
        self._readers.append(reader)

    def change_queue(self, source: str, write: WriteAll) -> ChangeQueue:
        """The changes of ``source``, which ``write`` writes: those of this server never conflict."""
        queue = self._change_queues.get(source)
        if queue is None:
            queue = self._change_queues[source] = ChangeQueue(self.git_threads, write)
        return queue

    def answer_lock(self, caller: str, key: str) -> asyncio.Lock:
        """Lets one request of ``caller`` with the idempotency key ``key`` be answered at a time."""
        lock = self._answer_locks.get((caller, key)) or asyncio.Lock()
        return self._answer_locks.setdefault((caller, key), lock)

    @property
    def writes(self) -> Literal["branch", "commit", "refuse"]:
        """What a change of a resource becomes."""
        return self.settings.api.writes if self.settings.api is not None else "refuse"

    def close(self) -> None:
        """Close what is open."""
        self.changes.close()
        self.git_threads.shutdown(wait=False, cancel_futures=True)
        self.authenticator.sender_threads.shutdown(wait=False, cancel_futures=True)
        with suppress(RecordsError):
            self.refusals.flush(now=True)
        self.store.close()
        self.writers.close()
        for reader in (self.reader, *self._readers):
            reader.close()
