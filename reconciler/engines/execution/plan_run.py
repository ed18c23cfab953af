"""One run of the executor: journals, performs and records ready steps, in groups that share a transaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from reconciler.engines.execution import messages
from reconciler.engines.execution.attempts import Attempts
from reconciler.engines.execution.recorder import Recorder, StepRun
from reconciler.engines.execution.scheduler import StepScheduler
from reconciler.engines.protocol import Engine, Outcome
from reconciler.errors import EngineError, RecordsError
from reconciler.planning.plan import Action, Hold
from reconciler.tasks import cancel_and_wait

BATCH = 256
"""The most steps that one transaction journals: enough to share the cost of a commit, few enough to end soon."""


class ExecutionContext(msgspec.Struct, frozen=True):
    """The context of a plan run; the same for all runs of an executor. ``parallel`` limits the tasks in flight."""

    engines: Mapping[str, Engine]
    recorder: Recorder
    attempts: Attempts
    parallel: int


class PlanRun:
    """Takes jobs from ready to recorded. ``rows`` are the existing journal rows of jobs, by position (a replay)."""

    def __init__(
        self,
        means: ExecutionContext,
        jobs: Sequence[StepRun],
        rows: Mapping[int, Sequence[int]],
        preempted: Callable[[], bool],
    ) -> None:
        self._context = means
        self._jobs = jobs
        self._order = StepScheduler([job.step for job in jobs])
        self._rows = {position: tuple(ids) for position, ids in rows.items()}
        self._preempted = preempted
        self._stopped = False
        self._outcomes: list[Outcome | None] = [None] * len(jobs)
        self._fresh: list[int] = []
        self._tasks: dict[asyncio.Task[Outcome], int] = {}
        self._busy: Counter[str] = Counter()

    def hold(self, digest: str, refusal: str = "") -> None:
        """Let the steps on hold wait; ``digest`` identifies the plan for an approval, which a ``refusal`` denies."""
        for position in self._order.on_hold:
            step = self._jobs[position].step
            volumes = self._context.recorder.data_of(step) if step.hold is Hold.VOLUMES else ""
            self._record_outcome(position, messages.hold_outcome(step, digest, volumes, refusal))

    async def run(self) -> list[Outcome]:
        """Returns one outcome for each job, in their order; what they observed is in the records.

        Raises RecordsError once no step is in flight.
        """
        try:
            while True:
                began = self._commit()
                if not (began or self._tasks or self._fresh):
                    return self._all_outcomes()
                # Other tasks run only here, between the commit and the first step. From the first step to the next
                # commit no command can overtake the results of an immediate engine.
                await asyncio.sleep(0)
                self._launch(began)
                await self._collect()
        except RecordsError:
            self._stopped = True
            if self._tasks:
                await asyncio.wait(self._tasks)
            raise
        finally:
            await self._abandon()

    def _should_stop(self) -> bool:
        return self._stopped or self._preempted()

    def _commit(self) -> list[int]:
        """Record ended steps and journal the next ones, in one transaction."""
        ready = any(self._order.ready.values()) and not self._should_stop()
        if not (ready or self._fresh):
            return []
        recorder = self._context.recorder
        with recorder.transaction():
            recorder.write([(self._jobs[position], self._outcome(position)) for position in self._fresh])
            recorder.end([row for position in self._fresh for row in self._rows.pop(position, ())])
            self._forget_observations()
            began = self._take() if ready else []
            new = [position for position in began if position not in self._rows]
            rows = recorder.begin([self._jobs[position] for position in new])
        self._rows.update((position, (row,)) for position, row in zip(new, rows, strict=True))
        return began

    def _forget_observations(self) -> None:
        """Drop what was recorded: the states of 100,000 resources are not in memory until the last step has ended."""
        for position in self._fresh:
            self._outcomes[position] = msgspec.structs.replace(self._outcome(position), seen=None, also=())
        self._fresh.clear()

    def _take(self) -> list[int]:
        began: list[int] = []
        for location in list(self._order.ready):
            engine = self._context.engines.get(location)
            if engine is None:
                self._refuse(location)
                continue
            room = min(BATCH - len(began), engine.parallel - self._busy[location])
            if not engine.immediate:
                room = min(room, self._context.parallel - self._waiting_tasks())
            began += self._take_at(location, room)
        return began

    def _take_at(self, location: str, room: int) -> list[int]:
        began: list[int] = []
        ready = self._order.ready[location]
        while ready and len(began) < room:
            position = ready.popleft()
            step = self._jobs[position].step
            # Steps in the journal have already begun, so they are finished even on a full disk.
            if position not in self._rows and self._context.recorder.disk_full and step.action is not Action.DELETE:
                self._record_outcome(position, messages.disk_full_outcome(step))
                continue
            unhealthy = self._context.recorder.unhealthy(step.needs_healthy)
            if unhealthy is None:
                began.append(position)
            else:
                self._record_outcome(position, messages.not_healthy_outcome(step, str(unhealthy)))
        self._busy[location] += len(began)
        return began

    def _waiting_tasks(self) -> int:
        return sum(count for location, count in self._busy.items() if not self._context.engines[location].immediate)

    def _refuse(self, location: str) -> None:
        ready = self._order.ready[location]
        while ready:
            position = ready.popleft()
            self._record_outcome(position, messages.not_bound_outcome(self._jobs[position].step))

    def _launch(self, began: Sequence[int]) -> None:
        attempts = self._context.attempts
        for position in began:
            step = self._jobs[position].step
            engine = self._context.engines[step.location]
            ended = attempts.try_immediately(engine, step) if engine.immediate else None
            if isinstance(ended, Outcome):
                self._finish(position, ended)
            else:
                self._spawn(position, engine, ended)

    def _spawn(self, position: int, engine: Engine, error: EngineError | None) -> None:
        step = self._jobs[position].step
        trying = self._context.attempts.try_with_retries(engine, step, self._should_stop, error)
        self._tasks[asyncio.create_task(trying, name=str(step.id))] = position

    async def _collect(self) -> None:
        if self._tasks and not self._fresh:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in [task for task in self._tasks if task.done()]:
            self._finish(self._tasks.pop(task), task.result())

    def _finish(self, position: int, outcome: Outcome) -> None:
        self._busy[self._jobs[position].step.location] -= 1
        self._record_outcome(position, outcome)

    def _record_outcome(self, position: int, outcome: Outcome) -> None:
        self._outcomes[position] = outcome
        self._fresh.append(position)
        for blocked in self._order.complete(position, outcome.result):
            step, cause = self._jobs[blocked.position].step, self._jobs[blocked.cause].step
            self._outcomes[blocked.position] = messages.blocked_outcome(step, cause, blocked.result)
            self._fresh.append(blocked.position)

    def _outcome(self, position: int) -> Outcome:
        outcome = self._outcomes[position]
        return outcome if outcome is not None else messages.preempted_outcome(self._jobs[position].step)

    def _all_outcomes(self) -> list[Outcome]:
        return [self._outcome(position) for position in range(len(self._jobs))]

    async def _abandon(self) -> None:
        await cancel_and_wait(self._tasks, "steps of a plan")
