"""Determines which steps of a plan may begin: those whose dependencies are all applied. Pure bookkeeping."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from reconciler.engines.protocol import Result
from reconciler.planning.plan import Hold, Step


class Blocked(msgspec.Struct, frozen=True, order=True):
    """A step that cannot begin in this run, and the step that causes this; both by their position in the plan."""

    position: int
    cause: int
    result: Result


class StepScheduler:
    """The steps of one plan by position; ``ready`` contains those that may begin, by location, in the plan's order.

    A dependency that is not in the plan counts as done. Raises ValueError for a plan in which a step precedes one of
    its dependencies.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._followers: dict[int, list[int]] = {}
        self._unmet = [0] * len(steps)
        self._blame: dict[int, tuple[bool, int]] = {}
        self.ready: dict[str, deque[int]] = {}
        self.on_hold: list[int] = []
        positions = {step.id: position for position, step in enumerate(steps)}
        for position, step in enumerate(steps):
            for awaited in step.waits_for:
                self._link(positions.get(awaited), position)
            if step.hold is not Hold.NONE:
                self.on_hold.append(position)
                self._unmet[position] = -1
            elif not self._unmet[position]:
                self._release(position)

    def complete(self, position: int, result: Result) -> list[Blocked]:
        """Record how a step ended; release the steps that now may begin, and return those that now cannot.

        A step is decided when its last dependency has ended, so the result does not depend on timing. A failure has
        precedence over a wait; among equals, the first in the plan is the cause.
        """
        blocked: list[Blocked] = []
        ended = [(position, result)]
        while ended:
            done, how = ended.pop()
            for follower in self._followers.get(done, ()):
                verdict = self._decide(follower, done, how)
                if verdict is not None:
                    blocked.append(verdict)
                    ended.append((follower, verdict.result))
        return blocked

    def _link(self, awaited: int | None, position: int) -> None:
        if awaited is None:
            return
        if awaited >= position:
            step, other = self._steps[position], self._steps[awaited]
            raise ValueError(f"the plan is out of order: {step.id} comes before {other.id}, which it waits for")
        self._followers.setdefault(awaited, []).append(position)
        self._unmet[position] += 1

    def _release(self, position: int) -> None:
        self.ready.setdefault(self._steps[position].location, deque()).append(position)

    def _decide(self, follower: int, done: int, how: Result) -> Blocked | None:
        if self._unmet[follower] < 0:
            return None
        if how is not Result.APPLIED:
            blame = (how is Result.WAITING, done)
            self._blame[follower] = min(blame, self._blame.get(follower, blame))
        self._unmet[follower] -= 1
        if self._unmet[follower]:
            return None
        if follower not in self._blame:
            self._release(follower)
            return None
        waits, cause = self._blame.pop(follower)
        return Blocked(follower, cause, Result.WAITING if waits else Result.SKIPPED)
