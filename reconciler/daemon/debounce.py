"""Combines the changes that engines notice by themselves into few wake-ups."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.bugs import contained
from reconciler.clock import Timers
from reconciler.engines.protocol import SupportsWatch
from reconciler.errors import EngineError
from reconciler.logs import log


class Debounce:
    """Calls ``call`` once, ``seconds`` after the first of many triggers, however fast they come."""

    def __init__(self, timers: Timers, seconds: float, call: Callable[[], None]) -> None:
        self._timers = timers
        self._seconds = seconds
        self._call = call
        self._asked = False

    def trigger(self) -> None:
        """Ask for a call."""
        if not self._asked:
            self._asked = True
            self._timers.after("noticed", self._seconds, self._answer)

    def _answer(self) -> None:
        self._asked = False
        self._call()


async def watch_engine(engine: SupportsWatch, noticed: Debounce) -> None:
    """Trigger ``noticed`` whenever ``engine`` notices a change; when watching fails, the intervals remain."""
    try:
        with contained("watching an engine"):
            async for _ in engine.changes():
                noticed.trigger()
    except EngineError as error:
        log().warning("watch_failed", message=str(error))
