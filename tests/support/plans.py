"""Plans and records for tests, in few words."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from reconciler.clock import Clock
from reconciler.engines.execution.executor import Executor
from reconciler.engines.execution.retry import RetryPolicy
from reconciler.engines.protocol import Engine, Outcome, Result
from reconciler.model.key import Key
from reconciler.planning.plan import Action, Hold, Plan, Step, StepId
from reconciler.records.store import Records

RETRY = RetryPolicy(base=1.0, cap=60.0, attempts=3)


def step(
    key: str,
    location: str = "here",
    *,
    action: Action = Action.CREATE,
    waits_for: Sequence[str] = (),
    version: int = 1,
    body: Mapping[str, Any] | None = None,
    hold: Hold = Hold.NONE,
    needs_healthy: Sequence[str] = (),
    engine: str = "ledger",
) -> Step:
    """A step; what it waits for is at the same location, unless written ``key@location``."""
    encoded = json.dumps(body or {}).encode()
    return Step(
        action,
        Key.parse(key),
        location,
        engine,
        version,
        f"digest-{version}",
        encoded,
        waits_for=tuple(step_id(one, location) for one in waits_for),
        needs_healthy=tuple(Key.parse(one) for one in needs_healthy),
        hold=hold,
    )


def step_id(text: str, location: str) -> StepId:
    """``workload/shop/api@there``, or at ``location`` where no place is written."""
    key, at, there = text.partition("@")
    return StepId(Key.parse(key), there if at else location)


def plan(*steps: Step) -> Plan:
    """A plan of the source ``main``."""
    return Plan("main", "main@sha1:abc", steps, "plan-digest", "held-digest")


def never() -> bool:
    """Nothing newer comes."""
    return False


class ExecutorHarness:
    """Records in a file, engines by location, and an executor over both."""

    def __init__(self, path: Path, clock: Clock, *, parallel: int = 8, retry: RetryPolicy = RETRY) -> None:
        self.clock = clock
        self.parallel = parallel
        self.retry = retry
        self.records = Records.open(path / "records.sqlite", clock_now=clock.now)
        self.engines: dict[str, Engine] = {}

    def executor(self, seed: int = 1) -> Executor:
        """An executor as a newly started program makes it."""
        return Executor(self.records, self.engines, self.clock, self.retry, self.parallel, random.Random(seed))

    def run(self, planned: Plan, preempted: Callable[[], bool] = never) -> Coroutine[Any, Any, list[Outcome]]:
        """Carry a plan out as run 1."""
        return self.executor().run(planned, 1, preempted)

    def recorded(self, location: str = "here") -> dict[str, int]:
        """Keys recorded at ``location`` with their versions."""
        return {
            str(record.key): record.version for record in self.records.applied.items() if record.location == location
        }


def ends(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Key to ``result`` or ``result/reason``, for comparing."""
    return {
        str(o.id.key): f"{o.result}/{o.reason}" if o.result is not Result.APPLIED else str(o.result) for o in outcomes
    }
