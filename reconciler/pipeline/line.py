"""One source's way from a revision to a plan, and from a plan to records: ``prepare``, ``accept``, ``perform``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from reconciler.clock import Clock
from reconciler.engines.executor import Executor
from reconciler.engines.protocol import Outcome, Result
from reconciler.manifests.normal import Dialect
from reconciler.model.finding import Finding, Severity
from reconciler.model.revision import Revision
from reconciler.pipeline.loading import Loaded, Loader, accept, blobs_of, decoder_id
from reconciler.pipeline.scoping import scope_of, unsettled_keys
from reconciler.pipeline.view import Surroundings, View
from reconciler.planning.plan import Action, Plan
from reconciler.planning.planner import make_plan
from reconciler.planning.scope import Refusal
from reconciler.records.store import Records
from reconciler.settings import Settings, SourceSettings
from reconciler.source.open import Source, open_source
from reconciler.source.repository import check_rewrite


class Prepared(msgspec.Struct, frozen=True):
    """A revision read, checked and planned, with nothing changed yet. ``plan`` is None where errors refuse it."""

    loaded: Loaded
    findings: list[Finding]
    plan: Plan | None

    @property
    def revision(self) -> Revision:
        """The revision that was read."""
        return self.loaded.revision


class Report(msgspec.Struct, frozen=True):
    """How a run ended: ``unchanged``, ``applied``, ``waiting`` (for approval or health), ``failed`` or ``refused``."""

    source: str
    revision: str
    outcome: str
    findings: list[Finding] = []
    plan: Plan | None = None
    outcomes: list[Outcome] = []

    @property
    def counts(self) -> dict[str, int]:
        """Applied steps by action, and the other outcomes by result; absent where zero."""
        if self.plan is None:
            return {"errors": sum(f.severity is Severity.ERROR for f in self.findings)}
        pairs = zip(self.plan.steps, self.outcomes, strict=True)
        words = (_DONE[s.action] if o.result is Result.APPLIED else str(o.result) for s, o in pairs)
        return dict(sorted(Counter(words).items()))


_DONE = {Action.CREATE: "created", Action.UPDATE: "updated", Action.REPLACE: "replaced", Action.DELETE: "deleted"}


class Line:
    """The line of one source over one set of records. Reading happens in one thread at a time."""

    def __init__(self, settings: Settings, source: SourceSettings, records: Records, clock: Clock) -> None:
        self.settings = settings
        self.records = records
        self.clock = clock
        self.source: Source = open_source(source, Path(settings.state))
        self.dialect = Dialect(settings.org, settings.scheme, records.secret_key)
        self.around = Surroundings.of(tuple(settings.locations), settings.external, settings.org)
        self.unsettled: set[str] | None = None

    @property
    def name(self) -> str:
        """The source's name."""
        return self.source.name

    def prepare(self, expression: str = "", *, keep_cache: bool = False) -> Prepared:
        """Read and plan the source's revision, or the one that ``expression`` names; changes nothing in the world.

        Raises SourceError. ``keep_cache`` remembers decoded documents, which only the holder of the lock should do.
        """
        repository = self.source.repository
        row = self.records.sources.get(self.name)
        if expression:
            revision = repository.resolve(expression)
        else:
            revision = self.source.revision()
            check_rewrite(repository, row.commit if row else "", revision)
        if keep_cache:
            self.records.blobs.keep(decoder_id(self.dialect))
        view = View(self.name, self.records, blobs_of(repository), self.dialect, self.around)
        skip = self.settings.on_invalid == "skip"
        loaded = Loader(repository, view, skip_invalid=skip, keep_cache=keep_cache).load(revision)
        if loaded.refused:
            return Prepared(loaded, loaded.findings, None)
        return self._planned(view, loaded)

    def _planned(self, view: View, loaded: Loaded) -> Prepared:
        if self.unsettled is None:
            self.unsettled = unsettled_keys(view, self.settings)
        now = self.clock.now()
        scope = scope_of(view, self.settings, str(loaded.revision), self.unsettled, now)
        plan, refusals = make_plan(scope)
        found = [_finding(view, refusal) for refusal in refusals]
        findings = sorted([*loaded.findings, *found])
        refused = bool(found) and self.settings.on_invalid == "refuse"
        return Prepared(loaded, findings, None if refused else plan)

    def accept(self, prepared: Prepared) -> None:
        """Make the prepared revision the last good one, in one transaction."""
        assert prepared.plan is not None
        with self.records.transaction():
            accept(self.records, prepared.loaded, self.name)
            if prepared.plan.held:
                self.records.approvals.remember_plan(prepared.plan.digest, prepared.plan.held)
                self.records.approvals.remember_plan(prepared.plan.held, prepared.plan.held)
            self.records.pending.add_many(self.name, (str(kept.key) for kept in prepared.plan.kept))

    async def perform(
        self, prepared: Prepared, executor: Executor, reason: str, preempted: Callable[[], bool]
    ) -> Report:
        """Accept ``prepared``, carry its plan out and tell how that ended. Raises RecordsError."""
        revision = str(prepared.revision)
        plan = prepared.plan
        if plan is None:
            return Report(self.name, revision, "refused", prepared.findings)
        with self.records.transaction():
            self.accept(prepared)
            run = self.records.runs.start(self.name, revision, reason) if plan.steps else 0
        self.unsettled = {*map(str, {step.key for step in plan.steps}), *(str(kept.key) for kept in plan.kept)}
        outcomes = await executor.run(plan, run, preempted) if plan.steps else []
        self.unsettled = _unsettled(plan, outcomes)
        report = Report(self.name, revision, _outcome(outcomes), prepared.findings, plan, outcomes)
        if plan.steps:
            self._finish(run, report)
        return report

    def _finish(self, run: int, report: Report) -> None:
        assert report.plan is not None
        with self.records.transaction():
            self.records.runs.finish(run, report.outcome, report.plan.digest, report.counts)
            self.records.events.trim(self.settings.events.keep)
            if report.plan.approved and report.outcome == "applied":
                self.records.approvals.consume(report.plan.approved)


def _unsettled(plan: Plan, outcomes: Iterable[Outcome]) -> set[str]:
    left = {str(outcome.id.key) for outcome in outcomes if outcome.result is not Result.APPLIED}
    return left | {str(kept.key) for kept in plan.kept}


def _outcome(outcomes: list[Outcome]) -> str:
    results = {outcome.result for outcome in outcomes}
    if Result.FAILED in results:
        return "failed"
    if Result.WAITING in results or Result.SKIPPED in results:
        return "waiting"
    return "applied" if results else "unchanged"


def _finding(view: View, refusal: Refusal) -> Finding:
    site = view.site(str(refusal.key))
    parts = tuple(refusal.pointer.split("/")[1:])
    line, column = view.place(site, parts)
    return Finding(site.path, line, column, refusal.rule, Severity.ERROR, refusal.message, refusal.suggestion,
                   str(refusal.key))  # fmt: skip
