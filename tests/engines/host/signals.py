"""Signals of a location, and what parts told by them."""

from __future__ import annotations

from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.protocol import EngineEvent
from reconciler.model.key import Key
from reconciler.reasons import Reason


class RecordedSignals(LocationSignals):
    """Appends each event to ``events``; ``listener`` is the only part."""

    def __init__(self, events: list[EngineEvent] | None = None) -> None:
        super().__init__()
        self.events = events if events is not None else []
        self.listener = Listener()
        self.connect((self.listener,))

    def report(self, key: Key, reason: Reason, message: str) -> None:
        """An event."""
        super().report(key, reason, message)
        self.events.append(EngineEvent(key, reason, message))


class Listener(LocationPart):
    """Remembers the signals of data planes."""

    def __init__(self) -> None:
        self.woken: list[Key] = []
        self.changes = 0

    def wake(self, key: Key) -> None:
        """A request waits."""
        self.woken.append(key)

    def on_serving_change(self) -> None:
        """An address or an error has changed."""
        self.changes += 1
