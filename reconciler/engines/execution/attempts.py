"""Performs one step by its engine, with retries; contains the bugs of an engine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.engines.calls import EngineCall
from reconciler.engines.execution import messages
from reconciler.engines.execution.retry import RetryPolicy, wait_after
from reconciler.engines.protocol import Engine, Outcome, Result
from reconciler.errors import EngineError, RecordsError
from reconciler.planning.plan import Step
from reconciler.tracing import Attributes, record_span

_PAUSE_SLICE = 0.5


class Attempts:
    """Performs steps."""

    def __init__(self, clock: Clock, retry: RetryPolicy, rng: random.Random) -> None:
        self._clock = clock
        self._retry = retry
        self._rng = rng
        self.calls: Counter[EngineCall] = Counter()

    def try_immediately(self, engine: Engine, step: Step) -> Outcome | EngineError:
        """The first try by an immediate engine, without a task; an error that a retry may fix is returned.

        Raises RecordsError, which ends the run.
        """
        with _step_span(step) as attributes:
            ended = self._perform_immediately(engine, step)
            attributes["reconciler.result"] = self._count(step, ended)
        if isinstance(ended, EngineError) and not ended.retry:
            return messages.failed_outcome(step.id, ended)
        return ended

    def _perform_immediately(self, engine: Engine, step: Step) -> Outcome | EngineError:
        performing = engine.perform(step)
        try:
            performing.send(None)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        except EngineError as error:
            return error
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - an engine's bug must not take the other steps down
            return self._bug(engine, step, error)
        performing.close()
        return self._bug(engine, step, TypeError("an immediate engine waited"))

    async def try_with_retries(
        self, engine: Engine, step: Step, leaving: Callable[[], bool], error: EngineError | None = None
    ) -> Outcome:
        """Try until the step succeeds, cannot succeed now, has used up its tries, or ``leaving`` ends the retries.

        ``error`` is the error of a first try that was already made. Raises RecordsError, which ends the run.
        """
        tries = 0
        while True:
            if error is None:
                with _step_span(step) as attributes:
                    ended = await self._try(engine, step)
                    attributes["reconciler.result"] = self._count(step, ended)
                if isinstance(ended, Outcome):
                    return ended
                error = ended
            tries += 1
            if not error.retry or error.away or tries >= self._retry.attempts or leaving():
                return messages.failed_outcome(step.id, error)
            await self._pause(wait_after(self._retry, tries, self._rng), leaving)
            if leaving():
                return messages.failed_outcome(step.id, error)
            error = None

    async def _try(self, engine: Engine, step: Step) -> Outcome | EngineError:
        try:
            return await engine.perform(step)
        except EngineError as error:
            return error
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - an engine's bug must not take the other steps down
            return self._bug(engine, step, error)

    def _count(self, step: Step, ended: Outcome | EngineError) -> str:
        """Count the call; returns its result: the reason of a failure, or "ok"."""
        failed = isinstance(ended, EngineError) or ended.result is Result.FAILED
        reason = str(ended.reason) if failed else ""
        self.calls[EngineCall(step.location, str(step.action), reason)] += 1
        return reason or "ok"

    async def _pause(self, seconds: float, leaving: Callable[[], bool]) -> None:
        until = self._clock.monotonic() + seconds
        while not leaving():
            left = until - self._clock.monotonic()
            if left <= 0:
                return
            await self._clock.sleep(min(left, _PAUSE_SLICE))

    def _bug(self, engine: Engine, step: Step, error: Exception) -> Outcome:
        return messages.bug_outcome(step.id, engine.name, internal_error(error, f"engine {engine.name}"))


def _step_span(step: Step) -> AbstractContextManager[Attributes]:
    facts = {"action": str(step.action), "key": str(step.key), "location": step.location}
    return record_span("step", **{f"reconciler.{name}": value for name, value in facts.items()})
