"""Collects the output files of a location's containers into log streams."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.logs.hole_punch import FreeRange, punch_hole
from reconciler.engines.host.logs.retention import expire_logs, make_room
from reconciler.engines.host.logs.tail import LogTail
from reconciler.engines.host.logs.writer import Writer
from reconciler.engines.host.runtimes.protocol import ContainerId, OutputForm
from reconciler.model.key import Key, Kind

BUDGET = 1 << 30
"""Bytes of all segments of a location."""

AT_ONCE = 16 << 20
"""Bytes that one collection reads in total."""

OF_EACH = 4 << 20
"""Bytes that one collection reads of each container."""

RETENTION = 7 * 86_400.0
"""Seconds for which logs of removed replicas are retained."""

EXPIRES = 3600.0
"""Seconds between two removals of expired logs."""

MANY_GONE = 20
"""The number of removed containers that triggers the next removal of expired logs at once."""

AGAIN = 5.0
"""Seconds between two tries while storing fails."""


class Collected(msgspec.Struct, frozen=True):
    """The result of a collection: bytes read, and whether there is more, so that the next one should follow at once.

    ``trouble`` is why something could not be stored, for people; ``""`` if all was stored. Output that is not stored
    stays in its file, so nothing is lost.
    """

    read: int = 0
    behind: bool = False
    trouble: str = ""


class LogLimits(msgspec.Struct, frozen=True):
    """Bytes of all segments of a location, and seconds for which logs of removed replicas are retained."""

    budget: int = BUDGET
    retention: float = RETENTION


LIMITS = LogLimits()


class Collector:
    """Collects output files of containers into segments below ``root``, and keeps the segments within ``limits``.

    Stored parts of an output file are freed. After a kill at any moment, the next collector continues: nothing is lost
    or stored twice, as long as a file grows only at its end.
    """

    def __init__(
        self, root: Path, location: str, clock: Clock, limits: LogLimits = LIMITS, free: FreeRange = punch_hole
    ) -> None:
        self._root = root
        self._location = location
        self._clock = clock
        self._limits = limits
        self._free = free
        self._outputs: dict[ContainerId, LogTail] = {}
        self._first = 0
        self._size: int | None = None
        self._trouble = ""
        self._again = 0.0
        self._expire_at = clock.monotonic()
        self._gone = 0
        self._dropped: dict[str, int] = {}
        self._expired: dict[Key, set[str]] = {}
        self._working = Lock()

    def watch(self, container_id: ContainerId, path: Path, form: OutputForm = OutputForm.PLAIN) -> None:
        """Collect the file ``path`` and all that is appended to it; the file may not exist yet."""
        tail = self._outputs.get(container_id)
        if tail is None or tail.path != str(path):
            directory = (
                self._root
                / container_id.key.gvc
                / container_id.key.name
                / container_id.replica
                / container_id.container
            )
            self._outputs[container_id] = LogTail(
                str(path), Writer(str(directory)), self._free, framed=form is OutputForm.CRI
            )

    async def forget(self, container_id: ContainerId) -> Collected:
        """Collect the rest of a container's output and stop; must be called before the file is removed.

        If the result has ``trouble``, the file is still collected: call again, or remove the file and lose the rest.
        """
        output = self._outputs.get(container_id)
        done = Collected(behind=output is not None and os.path.exists(output.path))
        while output is not None and done.behind and not done.trouble:
            done = await asyncio.to_thread(self._take, [output], True)
        if not done.trouble:
            self._gone += self._outputs.pop(container_id, None) is not None
        return done

    def abandon(self, container_id: ContainerId) -> None:
        """Stop collecting a file without its rest."""
        self._gone += self._outputs.pop(container_id, None) is not None

    async def collect(self) -> Collected:
        """Check every file once and store new output; another thread does the work if there is any."""
        now = self._clock.monotonic()
        if now >= self._expire_at or self._gone >= MANY_GONE:
            self._expire_at, self._gone = now + EXPIRES, 0
            await asyncio.to_thread(self._expire)
        if self._trouble and now < self._again:
            return Collected(trouble=self._trouble)
        active = [output for output in self._outputs.values() if output.may_have_output(now)]
        if not active:
            self._trouble = ""
            return Collected()
        self._first += 1
        first = self._first % len(active)
        done = await asyncio.to_thread(self._take, active[first:] + active[:first], False)
        self._trouble = done.trouble
        self._again = self._clock.monotonic() + AGAIN
        return done

    def _take(self, outputs: list[LogTail], last: bool) -> Collected:
        with self._working:
            read, behind, trouble = 0, False, ""
            self._drop_excess(outputs)
            for output in outputs:
                if read >= AT_ONCE:
                    behind = True
                    break
                try:
                    taken_bytes, written = output.take(self._clock.monotonic(), self._ms(), OF_EACH, last)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    trouble = trouble or f"logs of {self._location} cannot be stored: {error.strerror}"
                    self._size = None
                    continue
                read += taken_bytes
                behind = behind or taken_bytes >= OF_EACH
                self._size = None if self._size is None else self._size + written
            self._keep_to_budget()
            return Collected(read, behind, trouble)

    def _drop_excess(self, outputs: list[LogTail]) -> None:
        """Keep what waits of each file within its bound, before any is read: that of the last must not wait for it."""
        for output in outputs:
            # A file that is not there has none, and what cannot be stored is reported when it is read.
            with suppress(OSError):
                if dropped := output.drop_excess(self._ms()):
                    directory = output.writer.directory
                    self._dropped[directory] = self._dropped.get(directory, 0) + dropped

    def take_dropped(self) -> list[tuple[ContainerId, int]]:
        """The bytes of output that were dropped since the last call, by container."""
        dropped, self._dropped = self._dropped, {}
        places = []
        for directory, size in sorted(dropped.items()):
            gvc, workload, replica, container = Path(directory).relative_to(self._root).parts
            places.append((ContainerId(Key(Kind.WORKLOAD, gvc, workload), replica, container), size))
        return places

    def take_expired(self) -> dict[Key, set[str]]:
        """The removed replicas by workload whose logs were deleted since the last call, since their time was over."""
        expired, self._expired = self._expired, {}
        return expired

    def _expire(self) -> None:
        """Remove expired logs of removed replicas, and those beyond the number that is retained."""
        with self._working:
            followed = {output.writer.directory for output in list(self._outputs.values())}
            for stream in expire_logs(self._root, self._clock.expiry(), self._limits.retention, followed):
                key = Key(Kind.WORKLOAD, stream.gvc, stream.workload)
                self._expired.setdefault(key, set()).add(stream.replica)
            self._size = None

    def _keep_to_budget(self) -> None:
        if self._size is not None and self._size <= self._limits.budget:
            return
        writers = {}
        for output in list(self._outputs.values()):
            with suppress(OSError):
                output.writer.position()
                writers[output.writer.path] = output.writer

        def before_removal(path: str) -> None:
            if path in writers:
                writers[path].begin_anew(self._ms())

        self._size = make_room(self._root, self._limits.budget, before_removal)

    def _ms(self) -> int:
        return int(self._clock.now() * 1000)
