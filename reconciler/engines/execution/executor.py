"""Executes the steps of a plan in dependency order, in parallel if possible, and records their outcomes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import msgspec

from reconciler.clock import Clock
from reconciler.engines.execution.attempts import Attempts
from reconciler.engines.execution.plan_run import ExecutionContext, PlanRun
from reconciler.engines.execution.recorder import Recorder, StepRun
from reconciler.engines.execution.retry import RetryPolicy
from reconciler.engines.protocol import Engine, Outcome
from reconciler.planning.plan import Hold, Plan, StepId
from reconciler.records.store import Records


def _return_false() -> bool:
    return False


class Executor:
    """Executes plans exactly as they are; a failed step blocks only the steps that wait for it.

    ``engines`` are by location; ``""`` is the one for resources without a location. ``parallel`` limits the steps in
    flight at engines that wait, over all locations. A step is performed only after its journal row is durable, and its
    outcome is committed together with the record and the end of that row: whatever stops the program in between,
    ``replay`` performs the step once more. Use it from one event loop, one call at a time.
    """

    def __init__(
        self,
        records: Records,
        engines: Mapping[str, Engine],
        clock: Clock,
        retry: RetryPolicy,
        parallel: int,
        rng: random.Random,
    ) -> None:
        recorder, attempts = Recorder(records, clock, retry, rng), Attempts(clock, retry, rng)
        self.calls = attempts.calls
        """Calls of engines since this was made."""
        self._context = ExecutionContext(engines, recorder, attempts, parallel)

    async def run(self, plan: Plan, run: int, preempted: Callable[[], bool]) -> list[Outcome]:
        """Execute ``plan`` as run number ``run``; returns one outcome for each of its steps, in their order.

        Steps that an earlier run left in the journal are performed first; otherwise a later replay would overwrite
        newer work. Once ``preempted()`` is true, no new step begins, the steps in flight end, and the rest waits.
        Raises RecordsError if the records cannot be written, after the steps in flight have ended; steps that were
        performed and not recorded stay in the journal for ``replay``. Raises ValueError for a plan in the wrong order.
        """
        await self._resume(preempted)
        self._context.recorder.check_disk()
        jobs = [StepRun(plan.source, plan.revision, run, step) for step in plan.steps]
        course = PlanRun(self._context, jobs, {}, preempted)
        course.hold(plan.hold_digest, plan.refusal)
        return await course.run()

    async def replay(self, preempted: Callable[[], bool] = _return_false) -> list[Outcome]:
        """Repeat the steps in the journal that have no outcome; returns one outcome for each such key and location.

        Must be called at the start and after a run that ended in RecordsError, before the next plan is made, so that
        the plan is based on correct records. Raises RecordsError.
        """
        return await self._resume(preempted)

    async def _resume(self, preempted: Callable[[], bool]) -> list[Outcome]:
        # Of several rows for one key at one location only the newest counts: a step contains the whole desired state.
        # Steps in flight together never wait for each other, so they need no order.
        jobs: dict[StepId, StepRun] = {}
        rows: dict[StepId, list[int]] = {}
        for row, job in self._context.recorder.open_jobs():
            jobs[job.step.id] = job
            rows.setdefault(job.step.id, []).append(row)
        bare = [_clear_dependencies(job) for job in jobs.values()]
        course = PlanRun(self._context, bare, dict(enumerate(rows.values())), preempted)
        return await course.run()


def _clear_dependencies(job: StepRun) -> StepRun:
    """``job`` with a step that waits for nothing: it had begun, so its dependencies were met."""
    step = msgspec.structs.replace(job.step, waits_for=(), needs_healthy=(), hold=Hold.NONE)
    return msgspec.structs.replace(job, step=step)
