"""What happens in one part of a location and concerns others, or the daemon."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.probes.state import Verdict
from reconciler.engines.protocol import EngineEvent
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason

OBSERVED = (Kind.WORKLOAD, Kind.VOLUMESET)
"""Kinds that are observed one by one; what is reported of another concerns all."""
MAX_EVENTS = 1000
"""The number of events that wait for the daemon; the oldest ones are dropped."""


class LocationSignals:
    """Leads what a part has to tell to the parts that act on it; a part needs no other one for that.

    It is made before the parts, which get it when they are made. Until ``connect``, a signal to parts has no effect.
    Everything happens in the event loop.
    """

    def __init__(self) -> None:
        self._runs_schedules = False
        self._events: deque[EngineEvent] = deque(maxlen=MAX_EVENTS)
        self._change = asyncio.Event()
        self._changed: set[Key] = set()
        self._all_changed = False
        self._parts: Sequence[LocationPart] = ()

    def connect(self, parts: Sequence[LocationPart]) -> None:
        """Lead signals to ``parts``, in this order."""
        self._parts = parts

    @property
    def runs_schedules(self) -> bool:
        """Whether what manifests schedule runs by itself."""
        return self._runs_schedules

    def begin_schedules(self) -> None:
        """What manifests schedule runs from now on; does nothing if called again."""
        if not self._runs_schedules:
            self._runs_schedules = True
            for part in self._parts:
                part.begin_schedules()

    # To the daemon

    def report(self, key: Key, reason: Reason, message: str) -> None:
        """Report an event that no step caused."""
        self._events.append(EngineEvent(key, reason, message))
        self.report_change(key if key.kind in OBSERVED else None)

    def take_events(self) -> list[EngineEvent]:
        """The events since the last call, oldest first."""
        events = list(self._events)
        self._events.clear()
        return events

    def report_change(self, key: Key | None = None) -> None:
        """Report that an observation of ``key``, or (None) of anything here, may differ from the last one."""
        if key is None:
            self._all_changed = True
        else:
            self._changed.add(key)
        self._change.set()

    async def changes(self) -> AsyncIterator[frozenset[Key]]:
        """Yields what has changed since the last time, once for calls that come together; empty: anything has."""
        while True:
            await self._change.wait()
            self._change.clear()
            keys = frozenset() if self._all_changed else frozenset(self._changed)
            self._changed.clear()
            self._all_changed = False
            yield keys

    # To other parts

    def wake(self, key: Key) -> None:
        """A request waits for a replica of the workload ``key``."""
        for part in self._parts:
            part.wake(key)

    def want_again(self, template: ReplicaTemplate) -> None:
        """Another number of replicas of the workload of ``template`` may be right now."""
        for part in self._parts:
            part.want_again(template)

    def reload(self, key: Key) -> None:
        """What the workload ``key`` is made from is ready, or has changed."""
        for part in self._parts:
            part.reload(key)

    def retry_starts(self) -> None:
        """What a start waits for may be free now, such as a volume."""
        for part in self._parts:
            part.retry_starts()

    def stop(self, holder: str) -> bool:
        """The replica that holds a volume has to end, and starts again; False if there is none."""
        return any(part.stop(holder) for part in self._parts)

    def image_missing(self, key: Key) -> None:
        """An image of the workload ``key`` is not on this host, although it was."""
        for part in self._parts:
            part.provide_images(key)

    def report_probe(self, verdict: Verdict) -> None:
        """The verdict of a probe has changed."""
        for part in self._parts:
            part.on_verdict(verdict)

    def clock_set(self) -> None:
        """The wall clock was set, or the machine was suspended."""
        for part in self._parts:
            part.check_schedules()

    def serving_changed(self) -> None:
        """An address of a workload, or an error of serving it, has changed."""
        for part in self._parts:
            part.on_serving_change()
