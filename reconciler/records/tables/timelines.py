"""How the last runs went on: their phases and the tries of their steps, bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from reconciler.records.database import Database
from reconciler.records.sql import stored_row

KEEP = 1_000
"""The newest runs of which the timeline is kept."""


class Phase(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A phase of a run, or a try of a step: ``begin`` and ``seconds`` are counted from the start of the run.

    A step has its ``action``, ``key`` and ``location``. ``result`` is ``ok``, or the reason of a failure.
    """

    name: str
    begin: float
    seconds: float
    result: str = "ok"
    action: str = ""
    key: str = ""
    location: str = ""


class Timeline(NamedTuple):
    """The phases of a run in order of their begin; ``left_out`` others were too many.

    ``trace`` is the id of its trace, "" where traces are not exported.
    """

    trace: str
    phases: Sequence[Phase]
    left_out: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Phase]).decode


class Timelines:
    """One row for each of the newest runs that did something or were refused."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, run: int, timeline: Timeline) -> None:
        """Record the timeline of ``run``, and drop that of the oldest."""
        row = (run, timeline.trace, _encode(list(timeline.phases)), timeline.left_out)
        with self._db.transaction():
            self._db.write("INSERT OR REPLACE INTO timelines VALUES (?, ?, ?, ?)", row)
            self._db.write("DELETE FROM timelines WHERE run <= ?", (run - KEEP,))

    def get(self, run: int) -> Timeline | None:
        """The timeline of ``run``; None if there is none, or not any more."""
        row = self._db.one("SELECT trace, phases, left_out FROM timelines WHERE run = ?", (run,))
        if row is None:
            return None
        with stored_row("timelines", run):
            return Timeline(row[0], _decode(row[1]), row[2])
