"""Turns outcomes into records: applied resources, failures with their retry times, events, and changed statuses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager

import msgspec

from reconciler.clock import Clock
from reconciler.engines.engine_state import health_with_conditions
from reconciler.engines.execution import messages
from reconciler.engines.execution.retry import RetryPolicy, wait_after
from reconciler.engines.protocol import Observation, Outcome, Result
from reconciler.engines.volumes import data_in_words, read_volumes
from reconciler.model.key import PLACED, Key, Kind
from reconciler.model.record import Failure, Record
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason
from reconciler.records.sql import stored_row
from reconciler.records.store import Records
from reconciler.records.tables.events import NewEvent
from reconciler.records.tables.journal import JournalRow, NewStep

REPEATS_BETWEEN_EVENTS = 10
"""Of a step that repeatedly fails in the same way, every tenth failure is an event."""


class StepRun(msgspec.Struct, frozen=True, gc=False):
    """A step with the other inputs of its record; the journal stores this value."""

    source: str
    revision: str
    run: int
    step: Step


_pack = msgspec.msgpack.Encoder().encode


class _RecordBatch(msgspec.Struct):
    """All writes of one transaction, collected so that each table is written once."""

    records: list[Record] = []
    removed: list[tuple[str, str]] = []
    seen: list[Observation] = []
    failures: list[Failure] = []
    cleared: list[tuple[str, str]] = []
    events: list[NewEvent] = []
    pending: dict[str, list[str]] = {}


class Recorder:
    """Writes the outcomes of the executor. Every method raises RecordsError; none commits by itself."""

    def __init__(self, records: Records, clock: Clock, retry: RetryPolicy, rng: random.Random) -> None:
        self._records = records
        self._clock = clock
        self._retry = retry
        self._rng = rng

    def data_of(self, step: Step) -> str:
        """The data of the volume set that ``step`` deletes, as they were last observed; "" for any other resource."""
        if step.key.kind is not Kind.VOLUMESET:
            return ""
        record = self._records.applied.at(step.key, step.location)
        state = read_volumes(record.state) if record is not None else None
        return data_in_words(state) if state is not None else ""

    @property
    def disk_full(self) -> bool:
        """Whether the disk of the records is full, so that only deletes may begin."""
        return self._records.reserve.full

    def check_disk(self) -> None:
        """Check again whether the disk is full, and reserve space on it if there is enough."""
        self._records.reserve.restore()

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction for all writes within it."""
        return self._records.transaction()

    def begin(self, jobs: Sequence[StepRun]) -> list[int]:
        """Journal ``jobs``; returns their rows."""
        if not jobs:
            return []
        steps = [NewStep(job.step.key, job.step.location, str(job.step.action), _pack(job)) for job in jobs]
        return self._records.journal.begin(jobs[0].run, steps)

    def end(self, rows: Sequence[int]) -> None:
        """Remove ``rows`` from the journal, in the transaction that records their outcomes."""
        if rows:
            self._records.journal.end(rows)

    def open_jobs(self) -> list[tuple[int, StepRun]]:
        """Journal rows without an outcome, oldest first."""
        rows: list[JournalRow] = self._records.journal.open()
        return [(row.id, _decode_job(row)) for row in rows]

    def unhealthy(self, keys: Sequence[Key]) -> Key | None:
        """The first of ``keys`` that has no record, or is neither Healthy nor Recorded at all of its locations.

        A resource without a location on this host may run on another one, and cannot be waited for.
        """
        for key in keys:
            records = self._records.applied.get(key)
            placed = [record for record in records if record.location or key.kind not in PLACED]
            if not records or any(not record.health.is_good for record in placed):
                return key
        return None

    def write(self, ended: Sequence[tuple[StepRun, Outcome]]) -> None:
        """Record the outcomes of jobs."""
        batch = _RecordBatch()
        now = self._clock.now()
        for job, outcome in ended:
            if outcome.reason is not Reason.PREEMPTED and not _still_waits(job, outcome):
                batch.pending.setdefault(job.source, []).append(str(job.step.key))
            if outcome.result is Result.APPLIED:
                self._add_applied(batch, job, outcome, now)
            elif outcome.result is Result.FAILED:
                self._add_failure(batch, job, outcome, now)
            elif outcome.seen is not None:
                # Commands that wait for a running delete read its progress here.
                batch.seen.append(outcome.seen)
        self._flush(batch)

    def _add_applied(self, batch: _RecordBatch, job: StepRun, outcome: Outcome, now: float) -> None:
        step, key = job.step, str(job.step.key)
        if outcome.seen is None:
            batch.removed.append((key, step.location))
        else:
            batch.records.append(record_of(job, self._with_state(outcome.seen), now))
            if step.location and step.key.kind in PLACED:
                # The resource now has a location, so its record without one is obsolete.
                batch.removed.append((key, ""))
        for seen in outcome.also:
            batch.seen.append(seen)
            for record in self._records.applied.get(seen.key)[:1]:
                batch.pending.setdefault(record.source, []).append(str(seen.key))
        batch.cleared.append((key, step.location))
        reason = messages.APPLIED_REASON[step.action]
        message = messages.applied_message(step)
        batch.events.append(NewEvent(key, reason, message, step.location, job.run))

    def _with_state(self, seen: Observation) -> Observation:
        """``seen`` with the state of its record, if the engine leaves that to the next observation."""
        if seen.state:
            return seen
        record = self._records.applied.at(seen.key, seen.location)
        return msgspec.structs.replace(seen, state=record.state if record is not None else b"{}")

    def _add_failure(self, batch: _RecordBatch, job: StepRun, outcome: Outcome, now: float) -> None:
        step, key = job.step, str(job.step.key)
        failures = self._records.failures.get(step.key)
        past = next((failure for failure in failures if failure.location == step.location), None)
        attempts = past.attempts + 1 if past else 1
        since = past.since if past else now
        again = now + wait_after(self._retry, attempts, self._rng)
        reason, message = outcome.reason, outcome.message
        batch.failures.append(Failure(step.key, step.location, reason, message, attempts, since, again, outcome.retry))
        changed = past is None or (past.reason, past.message) != (reason, message)
        if changed or attempts % REPEATS_BETWEEN_EVENTS == 0:
            batch.events.append(NewEvent(key, reason, message, step.location, job.run))

    def _flush(self, batch: _RecordBatch) -> None:
        records = self._records
        records.applied.put_many(batch.records)
        records.applied.remove(batch.removed)
        for seen in batch.seen:
            health = health_with_conditions(seen.health, seen.state)
            records.applied.update_seen(seen.key, seen.location, health, seen.state)
        for key, location in batch.cleared if records.failures.count() else ():
            records.failures.clear(key, location)
        for failure in batch.failures:
            records.failures.put(failure)
        records.events.append_many(batch.events)
        for source, keys in batch.pending.items():
            records.status_queue.add_many(source, sorted(set(keys)))


def _still_waits(job: StepRun, outcome: Outcome) -> bool:
    """Whether a delete waits, and changes nothing: a new reason for that is recorded with the run, as news."""
    waits = outcome.result in (Result.WAITING, Result.SKIPPED) and outcome.seen is None
    return waits and job.step.action is Action.DELETE


def record_of(job: StepRun, seen: Observation, now: float) -> Record:
    """The record of an applied step: the desired state from the step, the rest from the engine's observation."""
    step = job.step
    return Record(
        key=step.key,
        location=step.location,
        source=job.source,
        digest=step.digest,
        body=step.body,
        version=seen.version or step.version,
        engine=step.engine,
        health=health_with_conditions(seen.health, seen.state),
        state=seen.state,
        alias=seen.alias or (step.alias if step.key.kind == "gvc" else ""),
        revision=job.revision,
        applied_at=now,
    )


def _decode_job(row: JournalRow) -> StepRun:
    with stored_row("journal", row.id):
        return msgspec.msgpack.decode(row.step, type=StepRun)
