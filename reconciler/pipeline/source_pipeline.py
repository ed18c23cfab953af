"""One source's way from a revision to a plan, and from a plan to records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from reconciler.clock import Clock
from reconciler.drift.healing import record_healed
from reconciler.engines.execution.retry import RetryPolicy, longest_wait
from reconciler.engines.protocol import Outcome, Result
from reconciler.errors import SourceError
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import Kind
from reconciler.model.revision import Revision
from reconciler.pipeline import report
from reconciler.pipeline.desired_view import BodyCache, DesiredStateView
from reconciler.pipeline.externals import ExternalResources
from reconciler.pipeline.file_reader import Read, reader
from reconciler.pipeline.load import LoadedRevision, Loader, blobs_of, decoder_fingerprint, gc_paused, index_revision
from reconciler.pipeline.plan_inputs import pending_keys_of, planner_input
from reconciler.pipeline.prune_budget import count_deletes, hold_ends, is_over
from reconciler.pipeline.report import Report
from reconciler.pipeline.revision_selector import RevisionSelector
from reconciler.planning.blame import Blames
from reconciler.planning.inputs import PlannerInput, Refusal
from reconciler.planning.plan import Plan
from reconciler.planning.planner import make_plan
from reconciler.records.store import Records
from reconciler.secrets.host_files import HostSecretDirectory, keyring_of, manifest_context
from reconciler.settings import RetrySettings, Settings, SourceSettings
from reconciler.source.source import Source, open_source
from reconciler.status import waiting

if TYPE_CHECKING:
    from reconciler.engines.execution.executor import Executor

CACHE_SWEEP_EVERY_RUNS = 1000
"""Runs after which documents that nothing comes from any more are dropped from the cache."""

POLL_AGAIN_REASONS = frozenset({"DependencyNotHealthy", "Preempted", "Terminating"})
"""Reasons to wait that nobody announces the end of: every look at the source is a run while one holds."""


class PlannedRevision(msgspec.Struct, frozen=True):
    """A revision read, checked and planned, with nothing changed yet. ``plan`` is None where errors refuse it.

    ``read`` gives the bytes of a file as findings name it, ``blames`` who asked for the changes where that was looked
    for.
    """

    loaded: LoadedRevision
    findings: list[Finding]
    plan: Plan | None
    read: Read
    blames: Blames | None = None

    @property
    def revision(self) -> Revision:
        """The revision that was read."""
        return self.loaded.revision


class CrashBackoff(msgspec.Struct):
    """When a source whose run ended in a bug is looked at again: later and later, and at once at another commit."""

    commit: str = ""
    tries: int = 0
    until: float = 0.0

    def record(self, commit: str, now: float, retry: RetrySettings) -> None:
        """A run of ``commit`` ended in a bug at ``now`` (seconds that never run backwards)."""
        self.tries = self.tries + 1 if commit == self.commit else 1
        self.commit = commit
        self.until = now + longest_wait(RetryPolicy(retry.base, retry.cap), self.tries)

    def clear(self) -> None:
        """A run ended otherwise."""
        self.commit, self.tries, self.until = "", 0, 0.0

    def holds_back(self, commit: str, now: float) -> bool:
        """Whether it is too soon for another run of ``commit``."""
        return commit == self.commit and now < self.until


class SourcePipeline:
    """The line of one source over one set of records. Reading happens in one thread at a time."""

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
        self.pending_keys: set[str] | None = None
        self.refused_commit = ""
        self.must_repoll = False
        self._hold_ends = ""
        self.revision_read: Revision | None = None
        self.crashes = CrashBackoff()

    @property
    def name(self) -> str:
        """The source's name."""
        return self.source.name

    def has_nothing_to_do(self) -> bool:
        """Whether a look at the source is all that is to be done: nothing moved, and nothing is owed another try.

        What waits for an operator is not looked at again until one says something. A revision that was refused is
        refused still; where the branch goes back to the last good one, that has to be told. Raises SourceError.
        """
        row = self.records.sources.get(self.name)
        revision = self.revisions.current()
        commit = revision.commit
        if self.crashes.holds_back(commit, self.clock.monotonic()):
            return True
        if self.refused_commit:
            return commit == self.refused_commit
        if row is None or self.pending_keys is None or self.must_repoll:
            return False
        # The same commit under another ref is new too: it may be less than what that ref had before.
        if (revision.ref, commit) != (row.ref, row.commit):
            return False
        due, now = self.records.failures.next_attempt(), self.clock.now()
        if is_over(self._hold_ends, now):
            return False
        # A try further away than any wait was set by a clock that has been put back since.
        return due is None or now < due <= now + self.settings.retry.cap

    def has_newer_revision(self, revision: str) -> bool:
        """Whether the source stands elsewhere than at ``revision``; one that cannot be read has not moved."""
        try:
            return str(self.revisions.current()) != revision
        except SourceError:
            return False

    @gc_paused()
    def plan_revision(
        self, expression: str = "", *, head: str = "", keep_cache: bool = False, whole: bool = False
    ) -> PlannedRevision:
        """Read and plan the source's revision, or the one that ``expression`` names; changes nothing in the world.

        Raises SourceError. ``head`` is what ``HEAD`` means, else what is applied. ``keep_cache`` remembers decoded
        documents, which only the holder of the lock should do; ``whole`` looks at every file again.
        """
        repository = self.source.repository
        select = self.revisions
        self.revision_read = revision = select.named(expression, head) if expression else select.current()
        if not expression:
            select.check(revision)
        self._reload_age_identity()
        self.records.documents.use(decoder_fingerprint(self.dialect), keep=keep_cache)
        with self.records.snapshot():
            loader = Loader(repository, self.view(), skip_invalid=self._skips, keep_cache=keep_cache)
            prepared = self._loaded_and_planned(loader, revision, whole=whole)
        if not expression:
            self.refused_commit = revision.commit if prepared.plan is None else ""
        return prepared

    @property
    def _skips(self) -> bool:
        """Whether files with errors stay as they were, in place of refusing the revision."""
        return self.settings.on_invalid == "skip"

    def _loaded_and_planned(self, loader: Loader, revision: Revision, *, whole: bool) -> PlannedRevision:
        prepared = self._planned(loader, loader.load(revision, whole=whole))
        while self._skips and (without := _refused_files(prepared)):
            found = prepared.findings
            prepared = self._planned(loader, loader.load(revision, whole=whole, without=without))
            prepared = msgspec.structs.replace(prepared, findings=sorted({*found, *prepared.findings}))
        return prepared

    def _reload_age_identity(self) -> None:
        """Read the identity again: its file may have come, or be another one by now."""
        ring = msgspec.structs.replace(keyring_of(self.settings), required=self.dialect.keyring.required)
        self.dialect = msgspec.structs.replace(self.dialect, keyring=ring)

    def view(self) -> DesiredStateView:
        """The desired state as it is indexed, ready to lay a difference over. Raises SourceNotFound."""
        blobs = blobs_of(self.source.repository)
        view = DesiredStateView(self.name, self.records, blobs, self.dialect, self.externals, self.host)
        view.bodies = self._bodies
        return view

    def scope(self, view: DesiredStateView, loaded: LoadedRevision) -> PlannerInput:
        """The planner's input for a loaded revision."""
        if self.pending_keys is None:
            self.pending_keys = pending_keys_of(view, self.settings)
        return planner_input(view, self.settings, str(loaded.revision), self.pending_keys, self.clock.now())

    def _planned(self, loader: Loader, loaded: LoadedRevision) -> PlannedRevision:
        read = reader(self.source.repository, loaded.revision)
        if loaded.refused:
            return PlannedRevision(loaded, loaded.findings, None, read)
        view = loader.view
        plan, refusals = make_plan(self.scope(view, loaded))
        found = [_finding(view, refusal) for refusal in refusals]
        findings = sorted([*loaded.findings, *found])
        refused = bool(found) and self.settings.on_invalid == "refuse"
        return PlannedRevision(loaded, findings, None if refused else plan, read)

    def start_run(self, prepared: PlannedRevision, reason: str) -> int:
        """Make the prepared revision the last good one, in one transaction; the number of the run that begins.

        0 where nothing is to be performed. Failures of steps that nobody wants any more are forgotten.
        """
        plan = prepared.plan
        assert plan is not None
        # Before a step is performed its journal row is on the disk, and all that was written before it.
        with self.records.repeatable():
            self._forget_failures(plan)
            index_revision(self.records, prepared.loaded, self.name)
            self.revisions.accept(prepared.revision)
            if plan.held:
                for digest in (plan.digest, plan.held):
                    self.records.approvals.remember_plan(digest, f"{self.name}/{plan.held}")
            self.records.approvals.carry(self.name, plan.held, plan.let_go)
            count_deletes(self.records, plan, self.clock.now())
            self._hold_ends = hold_ends(plan)
            run = self._append_run(prepared, reason) if plan.steps else 0
            if run % CACHE_SWEEP_EVERY_RUNS == CACHE_SWEEP_EVERY_RUNS - 1:
                self.records.documents.sweep()
            return run

    def _append_run(self, prepared: PlannedRevision, reason: str) -> int:
        made = prepared.revision
        return self.records.runs.start(self.name, str(made), reason, author=made.author, subject=made.subject)

    def _forget_failures(self, plan: Plan) -> None:
        """To be called while the index still has what the plan takes away: that may never have been recorded."""
        wanted = {(step.key, step.location) for step in plan.steps}
        for failure in self.records.failures.all(self.name) if self.records.failures.count() else ():
            if (failure.key, failure.location) not in wanted:
                self.records.failures.clear(failure.key, failure.location)

    async def execute(
        self, prepared: PlannedRevision, executor: Executor, reason: str, preempted: Callable[[], bool]
    ) -> Report:
        """Accept ``prepared``, carry its plan out and tell how that ended. Raises RecordsError."""
        import asyncio

        revision = str(prepared.revision)
        plan = prepared.plan
        if plan is None:
            return report.refused(self.name, revision, prepared.findings)
        run = await asyncio.to_thread(self.start_run, prepared, reason)
        kept = {str(kept.key) for kept in plan.kept}
        self.pending_keys = kept | {str(step.key) for step in plan.steps}
        self.must_repoll = True
        outcomes = await executor.run(plan, run, preempted) if plan.steps else []
        self.pending_keys = kept | {str(one.id.key) for one in outcomes if one.result is not Result.APPLIED}
        self.must_repoll = any(one.reason in POLL_AGAIN_REASONS for one in outcomes)
        ended = report.of_plan(self.name, revision, plan, outcomes, prepared.findings)
        if plan.steps or plan.kept:
            self._record_results(run, plan, outcomes, ended)
        return ended

    def _record_results(self, run: int, plan: Plan, outcomes: list[Outcome], ended: Report) -> None:
        # Only an approval that is used up has to outlive a power cut; the rest is told again by the next run.
        with self.records.transaction() if plan.let_go else self.records.repeatable():
            news = waiting.save_wait_reasons(self.records, outcomes, plan.kept, self.clock.now())
            self.records.status_queue.add_many(self.name, news)
            record_healed(self.records, plan, outcomes, run, self.clock.now())
            if run:
                self.records.runs.finish(run, ended.outcome, plan.digest, ended.counts)
            self.records.events.trim(self.settings.events.keep)
            if any(step.key.kind is Kind.SECRET for step in plan.steps):
                self.records.secret_data.sweep()
            gone = [one.id.key for one in outcomes if one.result is Result.APPLIED and one.seen is None]
            for key in gone:
                self.records.conditions.forget(str(key))
            if gone:
                self.records.restarts.sweep()
            for digest in plan.let_go if ended.good else ():
                self.records.approvals.consume(f"{self.name}/{digest}")


def _refused_files(prepared: PlannedRevision) -> frozenset[str]:
    """All files to go on without where the plan refuses a change of some; none where leaving out more is no use."""
    bad = {finding.path for finding in prepared.findings if finding.severity is Severity.ERROR}
    changed = {resource.path for resource in prepared.loaded.change_set.added.values()}
    skipped = prepared.loaded.skipped
    return skipped | bad if (bad - skipped) & changed else frozenset()


def _finding(view: DesiredStateView, refusal: Refusal) -> Finding:
    site = view.site(str(refusal.key))
    parts = tuple(refusal.pointer.split("/")[1:])
    line, column = view.position(site, parts)
    return Finding(site.path, line, column, refusal.rule, Severity.ERROR, refusal.message, refusal.suggestion,
                   str(refusal.key))  # fmt: skip
