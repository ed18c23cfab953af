"""The invariants at every step of a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from reconciler.engines.host.decisions.actions import (
    Action,
    Create,
    Decision,
    Kill,
    RunPreStop,
    Start,
    StopReplica,
    Terminate,
)
from reconciler.engines.host.decisions.availability import is_available, is_current
from reconciler.engines.host.decisions.replica import HookState, Phase, Replica, container_of
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.workload.spec import WorkloadSpec

Replicas = Mapping[str, Replica]

WAITS = (0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
"""Seconds between the end of a container and its next start; one that could not be started skips the first."""


Place = tuple[str, str]
"""A replica and its container."""


class _Tries(msgspec.Struct):
    """When a container was started last, how many runs in a row count, and whether it has had its start at once."""

    started: float
    short: int = 0
    at_once: bool = False


class _Termination(msgspec.Struct):
    """The moments of a container's termination."""

    hook: float | None = None
    term: float | None = None
    kill: float | None = None


class InvariantChecker:
    """Sees every decision, every act and every rest; raises AssertionError. ``absent_until``: the daemon was away."""

    def __init__(self, timing: Timing) -> None:
        self.absent_until = 0.0
        self.ends: list[tuple[float, str, str]] = []
        self._timing = timing
        self._courses: dict[Place, _Termination] = {}
        self._tries: dict[Place, _Tries] = {}

    def decided(self, spec: WorkloadSpec | None, replicas: Replicas, decision: Decision, now: float) -> None:
        """``decision`` was made, and nothing of it is done yet."""
        ends = [replicas[act.replica] for act in decision.actions if isinstance(act, StopReplica)]
        indices = [act.index for act in decision.actions if isinstance(act, Create) and act.index >= 0]
        there = {replica.index for replica in replicas.values()}
        assert len(set(indices)) == len(indices), "one identity is made twice"
        assert there.isdisjoint(indices), "an identity is made while it is there"
        if spec is not None and spec.stateful and not spec.rollout.parallel:
            _in_order(spec, replicas, indices, now)
        self.ends.extend((now, act.replica, act.reason) for act in decision.actions if isinstance(act, StopReplica))
        if spec is None or spec.suspended or not spec.replicas or not ends:
            return
        self._available_stays(spec, replicas, ends, now)
        self._current_stays(spec, replicas, ends)

    def _available_stays(self, spec: WorkloadSpec, replicas: Replicas, ends: list[Replica], now: float) -> None:
        """The end of an available replica leaves as many as are required."""
        counted = list(_members(spec, replicas.values()))
        before = {replica.name for replica in counted if is_available(spec, replica, now)}
        after = before - {replica.name for replica in ends}
        allowed = spec.replicas - (1 if spec.stateful else spec.rollout.unavailable)
        assert after == before or len(after) >= allowed, f"at {now} {len(after)} of {allowed} available ones are left"
        live = [replica for replica in counted if replica.ending is None]
        serving = [each.name for each in ends if each.ready and not is_current(spec, each)]
        if serving and not spec.stateful and len(live) <= spec.replicas + spec.rollout.surge:
            assert len(after) >= allowed, f"at {now} {serving} go though only {len(after)} are available"

    def _current_stays(self, spec: WorkloadSpec, replicas: Replicas, ends: list[Replica]) -> None:
        """A replica that is as wanted goes only where there are too many."""
        live = [replica for replica in replicas.values() if replica.ending is None]
        going = [replica for replica in ends if is_current(spec, replica)]
        if spec.stateful:
            assert all(replica.index >= spec.replicas for replica in going)
            surplus = [replica for replica in replicas.values() if replica.index >= spec.replicas]
            shrunk = max((replica for replica in surplus), key=lambda replica: replica.index, default=None)
            assert spec.rollout.parallel or all(replica is shrunk for replica in ends if replica in surplus), (
                "one is scaled down before the one above is gone"
            )
            updates = [replica for replica in ends if replica.index in range(spec.replicas)]
            assert len(updates) <= 1, "two identities are updated at once"
        elif len(live) <= spec.replicas + spec.rollout.surge:
            current = sum(is_current(spec, replica) for replica in live)
            assert len(going) <= max(0, current - spec.replicas), "a current replica goes for nothing"

    def carried_out(self, before: Replica, act: Action, now: float) -> None:
        """``act`` was carried out on a replica that was ``before``."""
        if isinstance(act, StopReplica):
            assert before.ending is None
        elif isinstance(act, Start):
            self._start(before, act, now)
        elif before.ending is not None and isinstance(act, RunPreStop | Terminate | Kill):
            self._end(before, before.ending, act, now)

    def _start(self, before: Replica, act: Start, now: float) -> None:
        container = container_of(before, act.container)
        assert before.ending is None, "a container of a replica that ends is started"
        assert container.phase is Phase.WAITING
        container_key = (before.name, act.container)
        tries = self._tries.get(container_key)
        if tries is not None:
            assert container.last is not None, "what runs is started"
            begun, at = tries.started, container.last.at
            tries = _Tries(begun) if at - begun >= self._timing.backoff_reset else tries
            soon, stillborn = now < at + WAITS[1], container.last.reason == "StartFailed"
            assert not soon or not (stillborn or tries.at_once), f"started too soon again, at {now}"
            self._on_time(at + WAITS[min(tries.short + stillborn, len(WAITS) - 1)], now)
            tries = _Tries(now, tries.short + 1, tries.at_once or soon)
        self._tries[container_key] = tries or _Tries(now)

    def _end(self, before: Replica, begun: float, act: RunPreStop | Terminate | Kill, now: float) -> None:
        container = container_of(before, act.container)
        course = self._courses.setdefault((act.replica, act.container), _Termination(term=container.sigterm_at))
        hooked, timing = (
            container.wanted.pre_stop is not None and not (course.term and course.hook is None),
            self._timing,
        )
        assert container.phase is Phase.RUNNING, "a container that does not run gets SIGTERM"
        if isinstance(act, RunPreStop):
            assert container.wanted.pre_stop
            assert course == _Termination()
            self._on_time(begun, now)
            course.hook = now
        elif isinstance(act, Terminate):
            assert course.term is None
            assert not hooked or container.pre_stop in (HookState.DONE, HookState.FAILED)
            if not hooked:
                self._on_time(begun + timing.drain * timing.scale, now)
            course.term = now
        else:
            assert course.kill is None
            whole = begun + timing.total * timing.scale
            self._on_time(whole if hooked else (course.term or 0.0) + timing.grace * timing.scale, now)
            course.kill = now

    def _on_time(self, due: float, now: float) -> None:
        assert due <= now, f"too early: {now} for {due}"
        assert due == now or now == self.absent_until, f"too late: {now} for {due}"

    def removed(self, replica: Replica, running: list[tuple[str, str]], now: float) -> None:
        """``replica`` is about to be removed; ``running`` of its containers still do."""
        assert replica.ending is not None, "removed without having ended"
        assert not running, f"{running} removed while it runs"
        for container in replica.containers:
            self._courses.pop((replica.name, container.name), None)
            self._tries.pop((replica.name, container.name), None)

    def check_done(self, spec: WorkloadSpec | None, replicas: Replicas, now: float) -> None:
        """Everything that is due at ``now`` is done."""
        live = [replica for replica in replicas.values() if replica.ending is None]
        if spec is None or spec.suspended or not spec.replicas:
            assert live == [], "a replica stays that is not wanted"
            return
        if spec.stateful:
            indices = [replica.index for replica in replicas.values() if replica.index >= 0]
            assert len(set(indices)) == len(indices), "two replicas have one identity"
        else:
            assert len(live) <= spec.replicas + spec.rollout.surge, f"{len(live)} at {now}"


def _members(wanted: WorkloadSpec, replicas: Iterable[Replica]) -> Iterable[Replica]:
    """Those of the replicas that count for what is wanted."""
    return (replica for replica in replicas if not wanted.stateful or replica.index in range(wanted.replicas))


def _in_order(wanted: WorkloadSpec, replicas: Replicas, indices: list[int], now: float) -> None:
    """OrderedReady: each is made after all below are available."""
    available = {replica.index for replica in replicas.values() if is_available(wanted, replica, now)}
    for index in indices:
        assert available.issuperset(range(index)), f"{index} is made before those below are available"
