"""Combines the changes that engines notice by themselves into few wake-ups."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.bugs import contained
from reconciler.clock import Timers
from reconciler.engines.protocol import SupportsWatch
from reconciler.errors import EngineError
from reconciler.logs import log
from reconciler.model.key import Key


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


async def watch_engine(engine: SupportsWatch, notice: Callable[[frozenset[Key]], None], noticed: Debounce) -> None:
    """Call ``notice`` and trigger ``noticed`` whenever ``engine`` notices changes; if that fails, intervals remain."""
    try:
        with contained("watching an engine"):
            async for keys in engine.changes():
                notice(keys)
                noticed.trigger()
    except EngineError as error:
        log().warning("watch_failed", message=str(error))
