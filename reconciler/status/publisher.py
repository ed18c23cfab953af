"""Writes changed status from the records to the status branch: at once the first time, then once per interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from reconciler.access.store import last_audit_link
from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.errors import ReconcilerError, RecordsError, SourceError
from reconciler.iteration import iterate_batches
from reconciler.model.key import Key, Kind
from reconciler.model.revision import revision_text
from reconciler.reasons import ConditionType, Reason
from reconciler.records.sql import stored_key
from reconciler.records.store import Records
from reconciler.records.tables.conditions import Condition
from reconciler.settings import Settings
from reconciler.source.source import Source
from reconciler.status.branch.anchors import anchor_trailer
from reconciler.status.branch.layout import StatusLayout, list_keys
from reconciler.status.branch.target import StatusTarget, open_target
from reconciler.status.branch.trees import FEW, File, LazyFiles
from reconciler.status.branch.writer import RUN_FILE
from reconciler.status.conditions import ResourceFacts, condition_from_error, make_condition
from reconciler.status.facts import FactsReader
from reconciler.status.overview import (
    MOST_LISTED,
    MOST_WORKLOADS,
    README_FILE,
    SourceOverview,
    render_readme,
    run_file,
    unready_in,
)
from reconciler.status.readiness import ReadinessIndex
from reconciler.status.render import resource_file
from reconciler.tracing import status_span

TOGETHER = 250
"""The number of resources whose facts are read together."""

_OWN = frozenset({ConditionType.STATUS_PUSHED, ConditionType.STATUS_STALE})


class StatusPublisher:
    """Writes the status of one source. Keys stay pending in the records until their files are written.

    For one thread at a time. Methods raise RecordsError. A Git error becomes a condition of the source (StatusPushed,
    and StatusStale once it has lasted for ``stale``), and the write is retried.
    """

    def __init__(self, records: Records, source: Source, settings: Settings, clock: Clock) -> None:
        self._records = records
        self._source = source
        self._settings = settings
        self._clock = clock
        self._target: StatusTarget | None = None
        self._readiness: ReadinessIndex | None = None
        self._owed: set[Key] = set()
        self._first = True
        self._published: SourceOverview | None = None
        self._tried: float | None = None
        self._takes_over = False
        self.written_at: float | None = None
        """When the status was last written (seconds since the epoch), None if it was not since the start."""

    def next_due(self) -> float | None:
        """Seconds until ``flush`` has something to do (0: now), None if everything is written."""
        if not self._records.status_queue.count(self._source.name) and self._overview() == self._published:
            return None
        if self._tried is None:
            return 0.0
        return max(0.0, self._tried + self._source.settings.status.interval - self._clock.monotonic())

    def flush(self, force: bool = False) -> bool:
        """Write the changed status if it is due or ``force`` is set; returns whether anything was written."""
        due = self.next_due()
        if due is None or (due > 0 and not force):
            return False
        self._tried = self._clock.monotonic()
        try:
            with status_span(self._source.name):
                self._write()
        except SourceError as fault:
            self._record_failure(fault)
            return False
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - a condition says it, and it is tried again
            self._target = self._readiness = None
            self._record_failure(internal_error(error, f"status {self._source.name}"))
            return False
        return True

    def take_over(self) -> None:
        """Let the next write replace the status that another daemon has written to the branch."""
        self._takes_over = True
        self._published = None

    def needs_packing(self) -> bool:
        """Whether enough was written since the last ``pack``."""
        return self._target is not None and self._target.needs_packing()

    def pack(self) -> None:
        """Pack the objects of the commits since the last one, in any thread. Raises SourceError."""
        if self._target is not None:
            self._target.pack()

    def _write(self) -> None:
        name = self._source.name
        target = self._open_target()
        everything = target.missing() or self._takes_over
        overview = self._overview()
        taken = self._records.status_queue.take(name)
        gathering = FactsReader(self._records, self._settings, name)
        index = self._readiness_index(gathering, everything)
        keys = {stored_key(key, "pending") for key in (self._all_keys() if everything else taken.keys)}
        if self._takes_over:
            keys.update(list_keys(target.tree()))
        layout = StatusLayout(target.tree(), keys | {Key(Kind.GVC, "", key.gvc) for key in keys if key.gvc})

        def files() -> Iterator[File]:
            for key, content in self._files(keys, gathering, index):
                yield layout.path(key), content
            listed = [gathering.facts(key) for key in index.first(MOST_LISTED)]
            whole = msgspec.structs.replace(
                overview,
                unready=index.unready,
                not_ready=listed,
                workloads=[gathering.facts(key) for key in self._first_workloads(gathering)],
                writer=target.writer,
            )
            yield from ((RUN_FILE, run_file(whole)), (README_FILE, render_readme(whole, layout.path)))

        # With many files, the first are written while the last are rendered.
        changes = LazyFiles(files) if len(keys) > FEW else dict(files())
        target.write(changes, self._message(overview, keys), int(self._clock.now()), layout.divided)
        self._owed.clear()
        self._first = self._takes_over = False
        self._published = overview
        with self._records.repeatable():
            self._records.status_queue.clear(name, taken.keys, taken.upto)
            self._record_push()

    def _open_target(self) -> StatusTarget:
        """Where the status goes. Raises SourceError, also if other people or another daemon write there."""
        if self._target is None:
            self._target = open_target(self._source, self._settings.state)
        if self._takes_over:
            self._target.take_over()
        self._target.refuse_others()
        return self._target

    def _files(
        self, keys: set[Key], gathering: FactsReader, index: ReadinessIndex
    ) -> Iterator[tuple[Key, bytes | None]]:
        """Status files. The health of a GVC depends on its members, so its file follows when theirs changes.

        The last process may not have written it, so until the first write it always follows.
        """
        self._owed |= {key for key in keys if key.kind is Kind.GVC}
        for batch in iterate_batches(sorted(keys - self._owed), TOGETHER):
            gathering.expect(batch)
            for key in batch:
                facts = gathering.facts(key, ())
                yield key, _render_status_file(facts)
                if index.add(facts) or (self._first and key.gvc):
                    self._owed.add(Key(Kind.GVC, "", key.gvc))
        for key in sorted(self._owed):
            facts = gathering.facts(key, index.members(key.name))
            yield key, _render_status_file(facts)
            index.add(facts)

    def _readiness_index(self, gathering: FactsReader, everything: bool) -> ReadinessIndex:
        """The current readiness of all resources."""
        if self._readiness is not None:
            return self._readiness
        assert self._target is not None
        if everything or unready_in(self._target.read(RUN_FILE)) == 0:
            self._readiness = ReadinessIndex()
        else:
            self._readiness = ReadinessIndex.of_records(self._records, self._source.name, gathering)
        return self._readiness

    def _all_keys(self) -> Iterable[str]:
        name = self._source.name
        desired = {key for key, _ in self._records.desired.scan(name)}
        return desired.union(key for key, *_ in self._records.applied.scan(name))

    def _overview(self) -> SourceOverview:
        """The source as a whole, without the list of unready resources.

        It omits the conditions of writing the status: a reader of the branch can see that it was written, and a failed
        write could not report itself there.
        """
        name = self._source.name
        row = self._records.sources.get(name)
        conditions = self._records.conditions.get(name)
        ready = next((one for one in conditions if one.type == ConditionType.READY), None)
        is_refused = ready is not None and ready.reason == Reason.INVALID_REVISION
        return SourceOverview(
            source=name,
            revision=revision_text(row.ref, row.commit) if row is not None else "",
            commit=row,
            refused=self._records.runs.last_read(name) if is_refused else None,
            counts=self._records.applied.counts(name),
            conditions=tuple(
                scope_condition.condition for scope_condition in conditions if scope_condition.type not in _OWN
            ),
        )

    def _first_workloads(self, gathering: FactsReader) -> list[Key]:
        """The workloads that the README lists; ``gathering`` has read what it needs of them."""
        keys = [
            stored_key(key, "applied")
            for key in self._records.applied.first_workloads(self._source.name, MOST_WORKLOADS)
        ]
        gathering.expect(keys)
        return keys

    def _message(self, overview: SourceOverview, keys: set[Key]) -> str:
        what = str(next(iter(keys))) if len(keys) == 1 else f"{len(keys)} resources"
        at = overview.revision.rpartition(":")[2][:12]
        subject = f"Status of {self._source.name}{' at ' if at else ''}{at}: {what if keys else 'the source'}"
        link = last_audit_link(self._settings.state)
        return f"{subject}\n{anchor_trailer(*link)}" if link is not None else subject

    def _record_push(self) -> None:
        self.written_at = self._clock.now()
        message = "the status branch is up to date"
        self._set(make_condition(ConditionType.STATUS_PUSHED, True, Reason.PUSHED, message))
        conditions = self._records.conditions.get(self._source.name)
        if any(
            scope_condition.type == ConditionType.STATUS_STALE and scope_condition.status
            for scope_condition in conditions
        ):
            self._set(make_condition(ConditionType.STATUS_STALE, False, Reason.PUSHED, message))

    def _record_failure(self, fault: ReconcilerError) -> None:
        self._published = None  # the failure is over only after a write, also where what failed to be written is undone
        self._set(condition_from_error(ConditionType.STATUS_PUSHED, fault))
        conditions = self._records.conditions.get(self._source.name)
        since = next(
            scope_condition.since
            for scope_condition in conditions
            if scope_condition.type == ConditionType.STATUS_PUSHED
        )
        if self._clock.now() - since > self._settings.stale:
            words = "status could not be written for longer than the settings allow (stale)"
            self._set(make_condition(ConditionType.STATUS_STALE, True, fault.reason, words))

    def _set(self, new_condition: Condition) -> None:
        self._records.conditions.set(self._source.name, new_condition)


def _render_status_file(facts: ResourceFacts) -> bytes | None:
    if not facts.exists:
        return None
    try:
        return resource_file(facts)
    except Exception as error:  # noqa: BLE001 - the files of the other resources are written
        bug = internal_error(error, f"status file {facts.key}")
        plain = ResourceFacts(facts.key, facts.source, digest=facts.digest, path=facts.path)
        return resource_file(plain, (condition_from_error(ConditionType.READY, bug),))
