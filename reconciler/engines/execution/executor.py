"""Takes the steps of a plan in dependency order, in parallel where the order allows, and records how each ended."""

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


def _never() -> bool:
    return False


class Executor:
    """Performs plans. It obeys them and adds nothing; a failure holds back only what waits for it.

    ``engines`` are by location, ``""`` is the one for resources without a place. ``parallel`` bounds the steps in
    flight at engines that wait, over all locations. A step is performed only after its journal row is durable, and
    its outcome is committed together with the record and the end of that row: whatever stops the program in between,
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
        self._context = ExecutionContext(engines, recorder, attempts, parallel)

    async def run(self, plan: Plan, run: int, preempted: Callable[[], bool]) -> list[Outcome]:
        """Carry ``plan`` out as run number ``run``; one outcome for each of its steps, in their order.

        What an earlier run left in the journal is performed first: left there, it would one day be replayed over
        newer work. Once ``preempted()`` says so nothing new begins, what is in flight ends, and the rest waits. Raises
        RecordsError where the records cannot be written, after what was in flight has ended; what was performed and
        not recorded stays in the journal for ``replay``. Raises ValueError for a plan that is out of order.
        """
        await self._resume(preempted)
        self._context.recorder.look_for_room()
        jobs = [StepRun(plan.source, plan.revision, run, step) for step in plan.steps]
        course = PlanRun(self._context, jobs, {}, preempted)
        course.hold(plan.held)
        return await course.run()

    async def replay(self, preempted: Callable[[], bool] = _never) -> list[Outcome]:
        """Perform again what is journaled without an outcome; one outcome for each such key and location.

        To be called at the start and after a run that ended in RecordsError, before the next plan is made, so that
        the plan sees records that are true. Raises RecordsError.
        """
        return await self._resume(preempted)

    async def _resume(self, preempted: Callable[[], bool]) -> list[Outcome]:
        # Of several rows of one key at one location the newest says all: a step names what shall be there in full.
        # Steps in flight together never wait for each other, so no order is needed.
        jobs: dict[StepId, StepRun] = {}
        rows: dict[StepId, list[int]] = {}
        for row, job in self._context.recorder.open_jobs():
            jobs[job.step.id] = job
            rows.setdefault(job.step.id, []).append(row)
        bare = [_bare(job) for job in jobs.values()]
        course = PlanRun(self._context, bare, dict(enumerate(rows.values())), preempted)
        return await course.run()


def _bare(job: StepRun) -> StepRun:
    """``job`` with a step that waits for nothing: it was begun, so all it waited for was there."""
    step = msgspec.structs.replace(job.step, waits_for=(), needs_healthy=(), hold=Hold.NONE)
    return msgspec.structs.replace(job, step=step)
