"""Whether what runs a location answers: what waits in vain is waited for once, not again by each step and each run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.errors import EngineError, RecordsError
from reconciler.reasons import Reason
from reconciler.tasks import cancel_and_wait

PATIENCE_SECONDS = 1.0
"""Seconds from which it is noted that an answer did not come. What fails sooner, such as a refused connection, costs
little, and may work at the next try."""
FIRST_PAUSE, LAST_PAUSE = 1.0, 30.0
"""Seconds between two questions to what does not answer: at first, and at most."""


class Reachability:
    """Notes that a cluster or a container runtime does not answer; refuses work from then on, and asks until it does.

    ``reason`` is that of a failure for want of an answer. ``ask`` asks, and raises EngineError where no answer comes;
    ``report`` is called once one does.
    """

    def __init__(
        self, clock: Clock, reason: Reason, ask: Callable[[], Awaitable[None]], report: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._reason = reason
        self._ask = ask
        self._report = report
        self._error: EngineError | None = None
        self._asked = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Raise EngineError where it is known that no answer comes."""
        if self._error is not None:
            await self._asked.wait()
        if self._error is not None:
            raise EngineError(str(self._error), reason=self._error.reason, away=True)

    @asynccontextmanager
    async def watch(self, *, opens: bool = False) -> AsyncIterator[None]:
        """Note an answer that the work inside waits for in vain; while that is known, raise EngineError at once.

        One request without an answer, as of a webhook that hangs, does not decide: others wait until the cluster was
        asked itself. ``opens``: the work inside asks.
        """
        await self.check()
        began = self._clock.monotonic()
        try:
            yield
        except EngineError as error:
            waited = self._clock.monotonic() - began >= PATIENCE_SECONDS
            if waited and error.reason is self._reason and self._error is None:
                self._note(error, is_certain=opens)
            raise

    def _note(self, error: EngineError, *, is_certain: bool) -> None:
        self._error = error
        if is_certain:
            self._asked.set()
        else:
            self._asked.clear()
        self._asking = asyncio.create_task(self._ask_until_it_answers(), name="what does not answer")

    async def _ask_until_it_answers(self) -> None:
        pause = FIRST_PAUSE
        while True:
            if self._asked.is_set():
                await self._clock.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE)
            with contain_bugs("what does not answer"), suppress(EngineError, RecordsError):
                await self._ask()
                break
            self._asked.set()
        self._forget()
        self._report()

    def _forget(self) -> None:
        self._error = None
        self._asked.set()

    async def close(self) -> None:
        """Ask no more; the next work tries for itself."""
        if self._asking is not None:
            await cancel_and_wait((self._asking,), "questions to what does not answer")
        self._forget()
