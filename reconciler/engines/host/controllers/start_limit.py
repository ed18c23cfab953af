"""The limit of executions that start at once on a location: many schedules name the same minute."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from itertools import islice

from reconciler.engines.host.decisions.actions import Create, Decision
from reconciler.engines.host.decisions.replica import Phase, Replica
from reconciler.model.key import Key


class StartLimit:
    """``limit`` executions start at once; the workloads of the others wait in turn, and are woken."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._starting: dict[Key, set[str]] = {}
        self._waiting: dict[Key, Callable[[], None]] = {}

    def admit(self, key: Key, decision: Decision, wake: Callable[[], None]) -> Decision:
        """``decision`` without the creations of executions that must wait; ``wake`` is called when one may start."""
        creations = [act for act in decision.actions if isinstance(act, Create)]
        room = self._free if key in islice(self._waiting, self._free) or len(self._waiting) < self._free else 0
        refused = creations[room:]
        if refused:
            self._waiting.setdefault(key, wake)
        elif self._waiting.pop(key, None) is not None:
            self._wake()
        return Decision(tuple(act for act in decision.actions if act not in refused), decision.wake)

    def take(self, key: Key, name: str) -> bool:
        """Begin the start of the execution ``name``; False if others took the room since it was admitted."""
        if not self._free:
            return False
        self._free -= 1
        self._starting.setdefault(key, set()).add(name)
        return True

    def release(self, key: Key, replicas: Sequence[Replica]) -> None:
        """End the starts of all executions of ``key`` that are not starting any more."""
        taken = self._starting.get(key)
        if taken:
            self._end(key, taken - {replica.name for replica in replicas if _is_starting(replica)})

    def forget(self, key: Key) -> None:
        """End all starts of ``key``; it waits for none."""
        self._end(key, frozenset(self._starting.get(key, ())))
        if self._waiting.pop(key, None) is not None:
            self._wake()

    def _end(self, key: Key, names: Set[str]) -> None:
        if not names:
            return
        self._starting[key] -= names
        if not self._starting[key]:
            del self._starting[key]
        self._free += len(names)
        self._wake()

    def _wake(self) -> None:
        """Wake as many as may start now; they leave the queue when they decide."""
        for wake in list(islice(self._waiting.values(), self._free)):
            wake()


def _is_starting(replica: Replica) -> bool:
    """Whether a container of the replica has not started for the first time."""
    waiting = (
        container.phase is Phase.WAITING and not container.failures and not container.started
        for container in replica.containers
    )
    return replica.ending is None and any(waiting)
