"""The history of runs, and how they went on: both bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from reconciler.records.database import Database
from reconciler.records.sql import stored_row

REFUSED, UNREADABLE = "refused", "unreadable"
"""Outcomes of runs that did nothing."""
INTERRUPTED = "interrupted"
"""The outcome of a run that a crash, or a failure of the records, ended."""

KEEP = 10_000
"""The number of remembered runs; at one a minute, a week."""

COLUMNS = "id, source, revision, reason, started, finished, outcome, digest, counts, message, author, subject"

_decode = msgspec.json.Decoder(dict[str, int]).decode


class Run(msgspec.Struct, frozen=True):
    """One run of the pipeline; ``finished`` is None while it runs, and after a crash until the next run.

    ``digest`` belongs to the plan, ``author`` and ``subject`` to the commit; times are seconds since the epoch.
    """

    id: int
    source: str
    revision: str
    reason: str
    started: float
    finished: float | None
    outcome: str
    digest: str
    counts: dict[str, int]
    message: str
    author: str = ""
    subject: str = ""

    @property
    def commit(self) -> str:
        """The full id of the commit in ``revision``."""
        return self.revision.rpartition(":")[2]


class Runs:
    """Runs in the order in which they began."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def start(self, source: str, revision: str, reason: str, *, author: str = "", subject: str = "") -> int:
        """Record the start of a run and its reason; returns its number."""
        with self._db.transaction():
            cursor = self._db.write(
                "INSERT INTO runs (source, revision, reason, started, author, subject) VALUES (?, ?, ?, ?, ?, ?)",
                (source, revision, reason, self._now(), author, subject),
            )
            number = int(cursor.lastrowid or 0)
            self._db.write("DELETE FROM runs WHERE id <= ?", (number - KEEP,))
        return number

    def finish(self, run: int, outcome: str, digest: str, counts: Mapping[str, int], message: str = "") -> None:
        """Record the outcome of the run, the digest of its plan and its counts."""
        self._db.write(
            "UPDATE runs SET finished = ?, outcome = ?, digest = ?, counts = ?, message = ? WHERE id = ?",
            (self._now(), outcome, digest, msgspec.json.encode(dict(counts)), message, run),
        )

    def end_interrupted(self, source: str) -> None:
        """Finish the last run of ``source`` if it is open; call it while none is in progress."""
        message = "it was interrupted; the next run does what it left"
        self._db.write(
            """UPDATE runs SET finished = ?, outcome = ?, message = ?
                WHERE id = (SELECT max(id) FROM runs WHERE source = ?) AND finished IS NULL""",
            (self._now(), INTERRUPTED, message, source),
        )

    def fold(self, run: int) -> None:
        """Forget the run before ``run`` of its source if it ended in the same way, by the same plan of one revision.

        For a run that changed nothing: what waits is planned again at each wake-up, and is listed once.
        """
        alike = " AND ".join(f"former.{name} IS runs.{name}" for name in ("revision", "outcome", "digest", "counts"))
        self._db.write(
            f"""DELETE FROM runs AS former WHERE id = (SELECT max(id) FROM runs WHERE id < ?1 AND source =
                (SELECT source FROM runs WHERE id = ?1)) AND EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND {alike})""",
            (run,),
        )

    def append_failed(self, run: Run) -> int:
        """Append ``run``, which did nothing; assigns its number and times, and returns the number.

        0 if it was not appended: repeated attempts on a revision with the same outcome are listed once.
        """
        last = self.last_read(run.source)
        alike = last is not None and (last.revision, last.outcome) == (run.revision, run.outcome)
        if last is not None and alike and (run.revision or last.message == run.message):
            return 0
        with self._db.transaction():
            number = self.start(run.source, run.revision, run.reason, author=run.author, subject=run.subject)
            self.finish(number, run.outcome, "", {}, run.message)
        return number

    def find(self, number: int) -> Run | None:
        """The run ``number``; None if there is none, or not any more."""
        row = self._db.one(f"SELECT {COLUMNS} FROM runs WHERE id = ?", (number,))
        return None if row is None else _decode_run(row)

    def last(self, source: str) -> Run | None:
        """The latest run of ``source``, finished or not."""
        row = self._db.one(f"SELECT {COLUMNS} FROM runs WHERE source = ? ORDER BY id DESC LIMIT 1", (source,))
        return None if row is None else _decode_run(row)

    def last_read(self, source: str) -> Run | None:
        """The latest run of ``source`` that could read a revision."""
        where = "source = ? AND outcome <> ?"
        row = self._db.one(f"SELECT {COLUMNS} FROM runs WHERE {where} ORDER BY id DESC LIMIT 1", (source, UNREADABLE))
        return None if row is None else _decode_run(row)

    def list(self, limit: int = 100, source: str = "") -> Sequence[Run]:
        """The last ``limit`` runs, of ``source`` or of all, newest first."""
        where, args = ("WHERE source = ? ", (source,)) if source else ("", ())
        rows = self._db.all(f"SELECT {COLUMNS} FROM runs {where}ORDER BY id DESC LIMIT ?", (*args, limit))
        return [_decode_run(row) for row in rows]


def _decode_run(row: tuple[Any, ...]) -> Run:
    with stored_row("runs", row[0]):
        values = (*row[:8], _decode(row[8]), *row[9:])
        return Run(*values)


KEEP_TIMELINES = 1_000
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


_encode_phases = msgspec.msgpack.Encoder().encode
_decode_phases = msgspec.msgpack.Decoder(list[Phase]).decode


class Timelines:
    """One row for each of the newest runs that did something or were refused."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, run: int, timeline: Timeline) -> None:
        """Record the timeline of ``run``, and drop that of the oldest."""
        row = (run, timeline.trace, _encode_phases(list(timeline.phases)), timeline.left_out)
        with self._db.transaction():
            self._db.write("INSERT OR REPLACE INTO timelines VALUES (?, ?, ?, ?)", row)
            self._db.write("DELETE FROM timelines WHERE run <= ?", (run - KEEP_TIMELINES,))

    def get(self, run: int) -> Timeline | None:
        """The timeline of ``run``; None if there is none, or not any more."""
        row = self._db.one("SELECT trace, phases, left_out FROM timelines WHERE run = ?", (run,))
        if row is None:
            return None
        with stored_row("timelines", run):
            return Timeline(row[0], _decode_phases(row[1]), row[2])
