"""Connections to clusters for callers that block, in one thread: each of many reads then needs no login."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from reconciler.clock import SystemClock
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.settings import ClusterSettings

ANSWER_SECONDS = 10.0
"""Seconds that a caller waits for a cluster at most."""
IDLE_SECONDS = 60.0
"""Seconds without use after which the connections to a cluster end."""
ROUND_SECONDS = 8.0
"""Seconds for many requests together: those that have no answer then are left out."""
AT_ONCE = 16
"""Requests of them that wait for an answer at once."""

FOR_ALL = (Reason.CREDENTIALS_REFUSED, Reason.CLUSTER_FORBIDDEN)
"""Reasons that one request has for all others like it."""

T = TypeVar("T")


def ask_cluster(
    settings: ClusterSettings, work: Callable[[KubeApi], Awaitable[T]], seconds: float = ANSWER_SECONDS
) -> T:
    """What ``work`` returns of the cluster of ``settings``. Blocks, ``seconds`` at most. Raises EngineError."""
    future = asyncio.run_coroutine_threadsafe(_CONNECTIONS.perform(settings, work, seconds), _CONNECTIONS.loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def gather_answers(requests: Sequence[Coroutine[Any, Any, T]]) -> list[T | None]:
    """The answers, in order; None for a request that failed alone, as when its node is gone.

    Raises EngineError if none got an answer, or for a reason that all have.
    """
    if not requests:
        return []
    slots = asyncio.Semaphore(AT_ONCE)

    async def send(request: Coroutine[Any, Any, T]) -> T:
        async with slots:
            return await request

    tasks = [asyncio.create_task(send(request)) for request in requests]
    try:
        await asyncio.wait(tasks, timeout=ROUND_SECONDS)
    finally:
        late = [task for task in tasks if task.cancel()]
        await asyncio.gather(*late, return_exceptions=True)
        # A task that never began has not begun its request.
        for request in requests:
            request.close()
    return _read_answers(tasks)


def _read_answers(tasks: Sequence[asyncio.Task[T]]) -> list[T | None]:
    answers: list[T | None] = []
    errors: list[EngineError] = []
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, EngineError):
            raise error
        if isinstance(error, EngineError):
            errors.append(error)
        answers.append(task.result() if error is None and not task.cancelled() else None)
    general = next((error for error in errors if error.reason in FOR_ALL), None)
    if general is not None:
        raise general
    if all(task.cancelled() or task.exception() is not None for task in tasks):
        raise errors[0] if errors else _explain_silence("the cluster", ROUND_SECONDS)
    return answers


def _explain_silence(server: str, seconds: float) -> ClusterError:
    return ClusterError(f"{server} does not answer within {round(seconds, 1):g} s", reason=Reason.CLUSTER_UNREACHABLE)


class _Connections:
    """Connections by cluster, all used in the event loop of one thread."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._apis: dict[ClusterSettings, KubeApi] = {}
        self._users: Counter[ClusterSettings] = Counter()
        self._ends: dict[ClusterSettings, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, in its thread."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="clusters", daemon=True).start()
            return self._loop

    async def perform(self, settings: ClusterSettings, work: Callable[[KubeApi], Awaitable[T]], seconds: float) -> T:
        """Do ``work``; it runs in the loop."""
        if settings not in self._apis:
            self._apis[settings] = KubeApi(settings, SystemClock())
        api = self._apis[settings]
        if timer := self._ends.pop(settings, None):
            timer.cancel()
        self._users[settings] += 1
        try:
            async with asyncio.timeout(seconds):
                return await work(api)
        except TimeoutError:
            raise _explain_silence(api.server, seconds) from None
        finally:
            self._users[settings] -= 1
            if not self._users[settings]:
                loop = asyncio.get_running_loop()
                self._ends[settings] = loop.call_later(IDLE_SECONDS, self._close_idle, settings)

    def _close_idle(self, settings: ClusterSettings) -> None:
        del self._ends[settings], self._users[settings]
        task = asyncio.get_running_loop().create_task(self._apis.pop(settings).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


_CONNECTIONS = _Connections()
