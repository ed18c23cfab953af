"""The pipeline of one source: from a revision to a plan, and from a plan to records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reconciler.clock import Clock
from reconciler.decode.cache import Blobs
from reconciler.decode.fingerprint import decoder_fingerprint
from reconciler.drift.healing import record_healed
from reconciler.engines.protocol import Outcome, Result
from reconciler.errors import SourceError
from reconciler.manifests.change_set import ChangeSet
from reconciler.model.key import Kind
from reconciler.model.revision import Revision
from reconciler.pipeline import report
from reconciler.pipeline.accept import index_revision
from reconciler.pipeline.desired_bodies import BlobDecoder, BodyCache
from reconciler.pipeline.desired_view import DesiredStateView, desired_view
from reconciler.pipeline.externals import ExternalResources
from reconciler.pipeline.load import Loaded, LoadedRevision, Loader, LoadOptions, gc_paused
from reconciler.pipeline.plan_inputs import finding_of, pending_keys_of, planner_input
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.report import Report
from reconciler.pipeline.revision_selector import RevisionSelector
from reconciler.pipeline.source_state import CrashBackoff, SourceState
from reconciler.pipeline.timeline import record_timeline
from reconciler.planning.inputs import PlannerInput
from reconciler.planning.plan import Action, Plan, Step
from reconciler.planning.planner import budgeted_deletes, make_plan
from reconciler.records.store import Records
from reconciler.secrets.host_files import HostSecretDirectory, keyring_of, manifest_context
from reconciler.settings import Settings, SourceSettings
from reconciler.source.file_reader import make_file_reader
from reconciler.source.source import Source, open_source
from reconciler.status import waiting
from reconciler.tracing import record_span

if TYPE_CHECKING:
    from reconciler.engines.execution.executor import Executor

CACHE_SWEEP_EVERY_RUNS = 1000
"""Runs after which unused documents are removed from the cache."""


Accepted = Callable[[ChangeSet], None]
"""Called, in a thread, with the change set of a newly accepted revision."""
Settle = Callable[[Sequence[Step]], Awaitable[bool]]
"""Observes what the steps of a plan changed; returns whether the health of anything changed."""


class RunResult(NamedTuple):
    """The report of a run, and the state of its source after it; whether the health of any resource changed."""

    report: Report
    state: SourceState
    health_changed: bool = False


class SourcePipeline:
    """The pipeline of one source over one set of records. Only one thread may read at a time."""

    def __init__(self, settings: Settings, source: SourceSettings, records: Records, clock: Clock) -> None:
        self.settings = settings
        self.records = records
        self.clock = clock
        self.source: Source = open_source(source, Path(settings.state))
        self.revisions = RevisionSelector(self.source, records)
        self.dialect = manifest_context(settings, records.secret_key)
        self.host: HostSecretDirectory | None = HostSecretDirectory.of(settings, source)
        self.externals = ExternalResources.of(settings)
        self._bodies: BodyCache = {}

    @property
    def name(self) -> str:
        """The source's name."""
        return self.source.name

    def has_nothing_to_do(self, state: SourceState) -> bool:
        """Whether the source in ``state`` needs no run: nothing moved, and no retry is due.

        Steps that wait for an operator need no run until the decision. A refused revision stays refused; when the
        branch returns to the last good revision, a run must report that. Raises SourceError.
        """
        row = self.records.sources.get(self.name)
        revision = self.revisions.current()
        commit = revision.commit
        if state.crashes.holds_back(commit, self.clock.monotonic()):
            return True
        if state.refused_commit:
            return commit == state.refused_commit
        if row is None or state.pending_keys is None or state.must_repoll:
            return False
        # The same commit under another ref is new too: it may be behind the last commit of that ref.
        if (revision.ref, commit) != (row.ref, row.commit):
            return False
        due, now = self.records.failures.next_attempt(), self.clock.now()
        if state.is_hold_over(now):
            return False
        # An attempt later than the longest wait means that the clock was set back since.
        return due is None or now < due <= now + self.settings.retry.cap

    def has_newer_revision(self, revision: str) -> bool:
        """Whether the source is at another revision than ``revision``; False if it cannot be read."""
        try:
            return str(self.revisions.current()) != revision
        except SourceError:
            return False

    def current_revision(self) -> Revision:
        """The wanted revision of the source, not yet compared with the last one. Raises SourceError."""
        return self.revisions.current()

    def plan_current(
        self, revision: Revision, state: SourceState, *, keep_cache: bool = False, check_host: bool = True
    ) -> PlannedRevision:
        """Plan ``revision``, the current one, for a source in ``state``; see ``plan_revision``.

        Without ``check_host``, secrets whose values changed on this host are left out, unless this is the first run.
        """
        self.revisions.check(revision)
        check_host = check_host or state.pending_keys is None
        prepared = self._prepare(revision, state.with_revision(revision), keep_cache=keep_cache, check_host=check_host)
        refused = revision.commit if prepared.plan is None else ""
        return msgspec.structs.replace(prepared, state=prepared.state.with_refusal(refused))

    def plan_revision(
        self, expression: str = "", *, head: str = "", keep_cache: bool = False, whole: bool = False
    ) -> PlannedRevision:
        """Read and plan the source's revision, or the one that ``expression`` names, without applying anything.

        Raises SourceError. ``HEAD`` means ``head``, else the applied commit. ``keep_cache`` stores decoded documents,
        which only the holder of the lock should do; ``whole`` checks every file again.
        """
        revision = self.revisions.resolve(expression, head) if expression else self.current_revision()
        if not expression:
            self.revisions.check(revision)
        return self._prepare(revision, SourceState(), keep_cache=keep_cache, whole=whole)

    @gc_paused()
    def _prepare(
        self, revision: Revision, state: SourceState, *, keep_cache: bool, whole: bool = False, check_host: bool = True
    ) -> PlannedRevision:
        self.records.documents.use(decoder_fingerprint(self.dialect), keep=keep_cache)
        with self.records.snapshot():
            options = LoadOptions(skip_invalid=self._skips, keep_cache=keep_cache, check_host=check_host)
            loader = Loader(self.source.repository, self.view(), options)
            return self._loaded_and_planned(loader, revision, state, whole=whole)

    @property
    def _skips(self) -> bool:
        """Whether files with errors stay as they were, instead of a refusal of the revision."""
        return self.settings.on_invalid == "skip"

    def _loaded_and_planned(
        self, loader: Loader, revision: Revision, state: SourceState, *, whole: bool
    ) -> PlannedRevision:
        prepared = self._plan(loader.load(revision, whole=whole), state)
        while self._skips and (without := prepared.refused_files()):
            # The next plan no longer finds the errors of the files that it skips, and the report must have them.
            findings, state = prepared.findings, prepared.state
            prepared = self._plan(loader.load(revision, whole=whole, without=without), state)
            prepared = msgspec.structs.replace(prepared, findings=sorted({*findings, *prepared.findings}))
        return prepared

    def view(self) -> DesiredStateView:
        """The indexed desired state, to which a change set can be applied. Raises SourceNotFound."""
        self.renew_identity()
        decoder = BlobDecoder(Blobs.of(self.source.repository), self.dialect, self.host)
        return desired_view(self.name, self.records, self.externals, decoder, self._bodies)

    def renew_identity(self) -> None:
        """Decrypt with the identity as it is now: its file may have been created or replaced since."""
        ring = msgspec.structs.replace(keyring_of(self.settings), required=self.dialect.keyring.required)
        self.dialect = msgspec.structs.replace(self.dialect, keyring=ring)

    def scope(
        self, view: DesiredStateView, loaded: LoadedRevision, pending_keys: frozenset[str] | None = None
    ) -> PlannerInput:
        """The planner's input for a loaded revision; without ``pending_keys``, a comparison of all resources finds
        them.
        """
        pending = pending_keys_of(view, self.settings) if pending_keys is None else pending_keys
        return planner_input(view, self.settings, str(loaded.revision), pending, self.clock.expiry())

    @record_span("plan")
    def _plan(self, result: Loaded, state: SourceState) -> PlannedRevision:
        loaded, view = result
        read = make_file_reader(self.source.repository, loaded.revision)
        if loaded.is_refused:
            return PlannedRevision(loaded, loaded.findings, None, read, state)
        if state.pending_keys is None:
            state = state.with_pending(pending_keys_of(view, self.settings))
        plan, refusals = make_plan(self.scope(view, loaded, state.pending_keys))
        refusal_findings = [finding_of(view, refusal) for refusal in refusals]
        findings = sorted([*loaded.findings, *refusal_findings])
        refused = bool(refusal_findings) and self.settings.on_invalid == "refuse"
        return PlannedRevision(loaded, findings, None if refused else plan, read, state)

    def start_run(self, prepared: PlannedRevision, reason: str, accepted: Accepted | None = None) -> int:
        """Make the prepared revision the last good one, in one transaction; return the id of the new run.

        0 for a plan without steps. Failures of steps that are no longer planned are deleted.
        """
        plan = prepared.plan
        assert plan is not None
        # A step's journal row is synced before the step is performed, and these writes with it.
        with self.records.repeatable():
            self._forget_failures(plan)
            index_revision(self.records, prepared.loaded, self.name)
            self.revisions.accept(prepared.revision)
            if plan.hold_digest:
                for digest in (plan.digest, plan.hold_digest):
                    self.records.approvals.remember_plan(digest, f"{self.name}/{plan.hold_digest}")
            self.records.approvals.carry(self.name, plan.hold_digest, plan.approved_digests)
            # Counted before the first step is journaled, so that a crash loses none; a retried delete counts once.
            if any(step.action is Action.DELETE for step in plan.steps):
                self.records.deletions.add(plan.source, budgeted_deletes(plan), self.clock.expiry())
            run = self._append_run(prepared, reason) if plan.steps else 0
            if run % CACHE_SWEEP_EVERY_RUNS == CACHE_SWEEP_EVERY_RUNS - 1:
                self.records.documents.request_sweep()
        # Only a committed revision is passed on.
        if accepted is not None:
            accepted(prepared.loaded.change_set)
        return run

    def _append_run(self, prepared: PlannedRevision, reason: str) -> int:
        revision = prepared.revision
        return self.records.runs.start(
            self.name, str(revision), reason, author=revision.author, subject=revision.subject
        )

    def _forget_failures(self, plan: Plan) -> None:
        """Call this while the index still has the resources that the plan removes: some may have no record."""
        targets = {(step.key, step.location) for step in plan.steps}
        for failure in self.records.failures.all(self.name) if self.records.failures.count() else ():
            if (failure.key, failure.location) not in targets:
                self.records.failures.clear(failure.key, failure.location)

    async def execute(
        self,
        prepared: PlannedRevision,
        executor: Executor,
        reason: str,
        preempted: Callable[[], bool],
        accepted: Accepted | None = None,
        settle: Settle | None = None,
    ) -> RunResult:
        """Accept ``prepared``, execute its plan, and ``settle`` its steps. Raises RecordsError.

        Drops the change set of ``prepared`` before the first step. Its memory becomes free only if the caller does not
        hold it either.
        """
        import asyncio

        revision = str(prepared.revision)
        plan = prepared.plan
        self.records.runs.end_interrupted(self.name)
        if plan is None:
            refused = report.make_refused_report(self.name, revision, prepared.findings)
            return RunResult(refused, msgspec.structs.replace(prepared.state, crashes=CrashBackoff()))
        run = await asyncio.to_thread(self.start_run, prepared, reason, accepted)
        prepared = prepared.without_resources()
        outcomes = await executor.run(plan, run, preempted) if plan.steps else []
        ended = report.of_plan(self.name, revision, plan, outcomes, prepared.findings)
        if plan.steps or plan.retained:
            self._record_results(run, plan, outcomes, ended)
        health_changed = await settle(plan.steps) if settle is not None else False
        if run:
            self._finish_run(run, plan, ended)
        return RunResult(ended, prepared.state.after_steps(plan, outcomes), health_changed)

    def _finish_run(self, run: int, plan: Plan, ended: Report) -> None:
        with self.records.repeatable():
            self.records.runs.finish(run, ended.outcome, plan.digest, ended.counts)
            record_timeline(self.records, run)
            if not ended.steps:
                self.records.runs.fold(run)

    def _record_results(self, run: int, plan: Plan, outcomes: list[Outcome], ended: Report) -> None:
        # Only a consumed approval must survive a power failure; the next run writes the rest again.
        with self.records.transaction() if plan.approved_digests else self.records.repeatable():
            news = waiting.save_wait_reasons(self.records, outcomes, plan.retained)
            self.records.status_queue.add_many(self.name, news)
            record_healed(self.records, plan, outcomes, run, self.clock.expiry())
            self.records.events.trim(self.settings.events.keep)
            if any(step.key.kind is Kind.SECRET for step in plan.steps):
                self.records.secret_data.sweep()
            deleted = {step.id for step in plan.steps if step.action is Action.DELETE}
            gone = {one.id.key for one in outcomes if one.result is Result.APPLIED and one.id in deleted}
            for key in sorted(gone):
                self.records.conditions.forget(str(key))
            if gone:
                self.records.restarts.sweep()
            # Steps that failed keep their approval, so that a retry needs no second one.
            for digest in plan.approved_digests if ended.good else ():
                self.records.approvals.consume(f"{self.name}/{digest}")
