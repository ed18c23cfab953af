"""The pipeline from commits to records, over real Git, real SQLite and a real executor, in few words."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.execution.executor import Executor
from reconciler.engines.execution.retry import RetryPolicy
from reconciler.engines.protocol import Engine, Outcome
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.model.finding import Finding
from reconciler.model.record import Record
from reconciler.pipeline.accept import index_revision
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.report import Report
from reconciler.pipeline.source_pipeline import Accepted, SourcePipeline
from reconciler.pipeline.source_state import SourceState
from reconciler.planning.plan import Plan, Step, StepId
from reconciler.records.store import Records
from reconciler.settings import LocationSettings, Settings, SourceSettings
from tests.support.clock import FakeClock
from tests.support.git import File, GitRepo

PLACES = ("here", "there")

_NUMBERS = count()

BASE = """kind: gvc
name: shop
spec: {staticPlacement: {locationLinks: [//location/here, //location/there]}}
"""
"""A GVC at both places, for ``shop/gvc.yaml``."""


class PipelineHarness:
    """One repository and the pipeline of its source.

    Further sources can share the records: pass those of another. A repository can be shared too: each way with
    a shared one has a branch of its own in it.
    """

    def __init__(
        self,
        path: Path,
        files: Mapping[str | bytes, File],
        *,
        records: Records | None = None,
        repo: GitRepo | None = None,
        name: str = "main",
        gvc: str = "",
        **settings: Any,
    ) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.repo = repo or GitRepo.create(path / f"{name}.git")
        self.branch = f"main-{next(_NUMBERS)}" if repo else "main"
        self.clock = FakeClock(auto=True)
        source = SourceSettings(name=name, url=str(self.repo.path), branch=self.branch, gvc=gvc)
        self.places = {location: LocationSettings("recorded") for location in PLACES}
        options: dict[str, Any] = {"org": "acme", "locations": self.places, "state": path, **settings}
        self.settings = Settings(sources=(source,), **options)
        self.records = records or Records.open(None, clock_now=self.clock.now)
        self.engines: dict[str, Engine] = {
            location: self._recorded(location) for location in ("", *self.settings.locations)
        }
        self.pipeline = self.new_pipeline()
        self._state_of, self._state = self.pipeline, SourceState()
        self.outcomes: dict[StepId, Outcome] = {}
        self.accepted: Accepted | None = None
        self.commit(files)

    def set_gvc(self, gvc: str) -> None:
        """Change the GVC of manifests for which no directory decides, as in the settings."""
        source = msgspec.structs.replace(self.settings.sources[0], gvc=gvc)
        self.settings = msgspec.structs.replace(self.settings, sources=(source,))
        self.pipeline = self.new_pipeline()

    def new_pipeline(self) -> SourcePipeline:
        """A pipeline as a newly started program makes it."""
        return SourcePipeline(self.settings, self.settings.sources[0], self.records, self.clock)

    @property
    def state(self) -> SourceState:
        """The state that the runs of ``pipeline`` left; empty where a fresh one replaced it."""
        return self._state if self._state_of is self.pipeline else SourceState()

    @state.setter
    def state(self, state: SourceState) -> None:
        self._state_of, self._state = self.pipeline, state

    def has_nothing_to_do(self) -> bool:
        """Whether a poll is all that the source needs now."""
        return self.pipeline.has_nothing_to_do(self.state)

    def commit(self, files: Mapping[str | bytes, File], **how: Any) -> str:
        """One more commit on the source's branch."""
        return self.repo.commit(files, branch=self.branch, **how)

    def prepare(self) -> PlannedRevision:
        """Read and plan what the branch holds now."""
        prepared = self.pipeline.plan_current(self.pipeline.current_revision(), self.state, keep_cache=True)
        self.state = prepared.state
        return prepared

    def plan(self) -> Plan:
        """The plan for what the branch holds now, which must be sound."""
        prepared = self.prepare()
        assert prepared.plan is not None, shown(prepared.findings)
        return prepared.plan

    def accept(self, prepared: PlannedRevision) -> None:
        """Take what was read for the last good revision, without applying it."""
        index_revision(self.records, prepared.loaded, self.pipeline.name)

    def apply(self) -> Report:
        """One run."""
        executor = _Noting(self.records, self.engines, self.clock, RetryPolicy(attempts=1), 8, random.Random(1))
        ended, self.state, _ = asyncio.run(
            self.pipeline.execute(self.prepare(), executor, "test", _never, self.accepted)
        )
        self.outcomes = executor.outcomes
        return ended

    def applied(self) -> None:
        """One run that must end well."""
        ended = self.apply()
        assert ended.outcome in ("applied", "unchanged"), (ended.outcome, shown(ended.findings), ended)

    def approve(self, digest: str) -> None:
        """Approve the deletes of a plan."""
        self.records.approvals.approve(f"{self.pipeline.name}/{digest}", by="ada")

    def recorded(self) -> dict[str, Record]:
        """Every record by ``key@location``."""
        return {placed(record): record for record in self.records.applied.items()}

    def _recorded(self, place: str) -> RecordedEngine:
        return RecordedEngine(self.records, place, self.settings.org, "example.com", self.clock)


class _Noting(Executor):
    """Keeps how each step ended."""

    outcomes: dict[StepId, Outcome] = {}

    async def run(self, plan: Plan, run: int, preempted: Callable[[], bool]) -> list[Outcome]:
        ended = await super().run(plan, run, preempted)
        self.outcomes = {outcome.id: outcome for outcome in ended}
        return ended


def placed(thing: Record | Step) -> str:
    """``workload/shop/api@here``, or the key alone where there is no place."""
    return f"{thing.key}@{thing.location}" if thing.location else str(thing.key)


def shown(findings: list[Finding]) -> list[str]:
    """Findings as a case writes them: ``PATH:LINE:COLUMN RULE | MESSAGE | SUGGESTION``."""
    lines = []
    for found in findings:
        words = [found.message, found.suggestion] if found.suggestion else [found.message]
        lines.append(f"{found.path}:{found.line}:{found.column} {' | '.join([found.rule, *words])}")
    return lines


def _never() -> bool:
    return False
