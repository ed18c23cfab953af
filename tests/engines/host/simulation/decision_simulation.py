"""A simulation without a daemon: decisions and changes driven by a heap of times, programs that follow a behaviour."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from functools import partial

import msgspec

from reconciler.engines.host.decisions import transitions as changes
from reconciler.engines.host.decisions.actions import (
    Action,
    Create,
    Decision,
    Kill,
    Remove,
    RunPreStop,
    Start,
    Terminate,
)
from reconciler.engines.host.decisions.availability import is_available, is_failing, is_starting
from reconciler.engines.host.decisions.decide import decide_actions
from reconciler.engines.host.decisions.replica import HookState, Phase, Replica
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.model.key import Key, Kind
from tests.engines.host.decisions.reading import line
from tests.engines.host.simulation.behaviour import BEHAVIOURS, Behaviour, ProgramRun, containers_of
from tests.engines.host.simulation.invariants import InvariantChecker

KEY = Key(Kind.WORKLOAD, "shop", "web")
BEGINNING = 1000.0
"""When a simulation begins, in seconds of the monotonic clock."""

TURNS = 2000
"""More turns than these at one moment go round in circles."""

Place = tuple[str, str]
"""A replica and its container."""


_state = msgspec.json.Decoder(list[Replica])


class DecisionSimulation:
    """One workload. What programs do is the truth in ``_runs``; what is known of it is in ``replicas``.

    ``carried_out`` lists every act that was carried out, with its moment.
    """

    def __init__(self, spec: WorkloadSpec, timing: Timing) -> None:
        self.now = BEGINNING
        self.wanted: WorkloadSpec | None = None
        self.last = spec
        self.replicas: dict[str, Replica] = {}
        self.timing = timing
        self.invariants = InvariantChecker(self.timing)
        self.carried_out: list[tuple[float, str]] = []
        self._made = 0
        self.behaviour = ""
        self._runs: dict[Place, ProgramRun] = {}
        self._behaviours: dict[int, Behaviour] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._version = 0
        self._deferred: list[Callable[[], None]] | None = None

    def push(self, behaviour: str) -> None:
        """Want a new version that behaves so."""
        self._version += 1
        self.behaviour = behaviour
        self._behaviours[self._version] = BEHAVIOURS[behaviour]
        containers = containers_of(behaviour)
        self.want(version=self._version, digest=f"digest-{self._version}", containers=containers)

    def want(self, **changes: object) -> None:
        """Want the same but for ``changes``."""
        self.last = self.wanted = msgspec.structs.replace(self.last, **changes)

    def delete(self) -> None:
        """Want no workload from now on."""
        self.wanted = None

    def at(self, seconds: float, call: Callable[[], None]) -> None:
        """Let ``call`` happen in ``seconds``; never, where they are infinite."""
        if math.isfinite(seconds):
            self._order += 1
            heapq.heappush(self._heap, (self.now + seconds, self._order, call))

    def live(self) -> list[Replica]:
        """The replicas that are not ending, in order of their making."""
        return [replica for replica in self.replicas.values() if replica.ending is None]

    def run(self, seconds: float) -> None:
        """Let the time pass: everything happens in its order, and what is due is done at once."""
        end = self.now + seconds
        wake = self._run_due()
        while True:
            due = self._heap[0][0] if self._heap else math.inf
            moment = min(due, wake)
            if moment > end:
                break
            self._rest_until(moment)
            before = self._available()
            self.now = moment
            if due > moment:
                assert self._decided().actions or self._available() != before, f"woken at {moment} for nothing"
            last = self._order
            while self._heap and self._heap[0][0] <= moment and self._heap[0][1] <= last:
                heapq.heappop(self._heap)[2]()
            wake = self._run_due()
        self._rest_until(end)
        self.now = end

    def crash(self, container: Place) -> None:
        """Let a running container end by itself."""
        if container in self._runs:
            self._end(container, self._runs[container], 1)

    def readiness(self, container: Place, ready: bool) -> None:
        """Let the readiness probe of a running container change its verdict."""
        replica = self.replicas.get(container[0])
        if (
            container in self._runs
            and replica is not None
            and changes.container_of(replica, container[1]).wanted.readiness
        ):
            self._probe(container, self._runs[container], ready)

    def die(self, container: Place) -> None:
        """Let the liveness probe of a running container fail."""
        if container in self._runs:
            self._not_alive(container, self._runs[container])

    def places(self) -> list[Place]:
        """Where containers run, in order of their names."""
        return sorted(self._runs)

    def restart(self, downtime: float) -> None:
        """Stop the daemon, and start it again with what it wrote down; hooks that ran meanwhile count as over."""
        if self._deferred is None:
            self._deferred = []
            written = msgspec.json.encode(list(self.replicas.values()))
            self.at(downtime, partial(self._come_back, written))

    @property
    def idle(self) -> bool:
        """Whether nothing will ever happen again by itself."""
        return not self._heap and self._decided() == Decision()

    def _come_back(self, written: bytes) -> None:
        self.replicas = {replica.name: replica for replica in _state.decode(written)}
        for replica in list(self.replicas.values()):
            for container in replica.containers:
                self._runs.get((replica.name, container.name), ProgramRun(True, False)).greets = False
                for hook in ("pre_stop", "post_start"):
                    if getattr(container, hook) is HookState.RUNNING:
                        self._change(changes.hook_finished, replica.name, container.name, hook, "", self.now)
        deferred, self._deferred = self._deferred or [], None
        self.invariants.absent_until = self.now
        for call in deferred:
            call()

    def _decided(self) -> Decision:
        return decide_actions(self.wanted, list(self.replicas.values()), self.now, self.timing)

    def _available(self) -> list[str]:
        spec = self.wanted
        if spec is None:
            return []
        starting = [each.name for each in self.live() if is_failing(each) and is_starting(each, self.now)]
        return [*starting, *(each.name for each in self.live() if is_available(spec, each, self.now))]

    def _run_due(self) -> float:
        """Do what is due, and what follows from it; the moment of the next decision."""
        if self._deferred is not None:
            return math.inf
        for _ in range(TURNS):
            decision = self._decided()
            if not decision.actions:
                self.invariants.check_done(self.wanted, self.replicas, self.now)
                if self.now != self.invariants.absent_until:
                    self._known()
                assert decision.wake is None or decision.wake > self.now, f"wake {decision.wake} at {self.now}"
                return math.inf if decision.wake is None else decision.wake
            self.invariants.decided(self.wanted, self.replicas, decision, self.now)
            for act in decision.actions:
                self._carry_out(act)
        raise AssertionError(f"no rest at {self.now}: {decision.actions}")

    def _known(self) -> None:
        """What is known of the replicas is the truth."""
        for replica in self.replicas.values():
            runs = [self._runs.get((replica.name, container.name)) for container in replica.containers]
            there = [container.phase is Phase.RUNNING for container in replica.containers]
            assert there == [run is not None for run in runs], f"at {self.now} {replica.name} runs otherwise"
            serves = all(run is not None and run.ready and not run.greets and not run.dead for run in runs)
            assert replica.ready == (serves and replica.ending is None), (
                f"at {self.now} {replica.name} serves: {serves}"
            )

    def _rest_until(self, moment: float) -> None:
        """Nothing may be due before ``moment`` that was not announced."""
        if self._deferred is None and moment > self.now:
            self.now = self.now + (moment - self.now) * 0.99
            assert not self._decided().actions, f"at {self.now} no wake-up was due for {self._decided().actions}"

    def _carry_out(self, act: Action) -> None:
        self.carried_out.append((self.now, line(act)))
        if isinstance(act, Create):
            self._create(act.index)
            return
        before = self.replicas[act.replica]
        if isinstance(act, Remove):
            self.invariants.removed(before, [place for place in self._runs if place[0] == act.replica], self.now)
            del self.replicas[act.replica]
            return
        self.replicas[act.replica] = changes.apply_action(before, act, self.now)
        self.invariants.carried_out(before, act, self.now)
        self._follow(before, act)

    def _create(self, index: int) -> None:
        assert self.wanted is not None
        self._made += 1
        name = f"web-{index}" if index >= 0 else f"web-r{self._made:04}"
        assert name not in self.replicas, f"{name} is made while it is there"
        self.replicas[name] = changes.new_replica(self.wanted, index, name, self.now, "")

    def _follow(self, replica: Replica, act: Action) -> None:
        """What the program does on it."""
        behaviour = self._behaviour(replica)
        if isinstance(act, Start):
            self._started((act.replica, act.container), behaviour)
        elif isinstance(act, RunPreStop):
            self._later((act.replica, act.container), behaviour.pre_stop or 0.0, self._hooked, "pre_stop")
        elif isinstance(act, Terminate):
            self._later((act.replica, act.container), behaviour.obeys, self._end, 143)
        elif isinstance(act, Kill):
            self._later((act.replica, act.container), 0.0, self._end, 137)

    def _started(self, container: Place, behaviour: Behaviour) -> None:
        if not behaviour.starts:
            self._change(changes.container_exited, *container, self.now, 127, "StartFailed", "no such program")
            return
        assert container not in self._runs, f"{container} is started twice"
        self._runs[container] = ProgramRun(behaviour.ready is None, behaviour.post_start is not None)
        if behaviour.ready is not None:
            self._later(container, behaviour.ready, self._probe, True)
        self._later(container, behaviour.unready, self._probe, False)
        if behaviour.lives:
            self._later(container, behaviour.lives, self._end, 1)
        else:
            self._end(container, self._runs[container], 1)
            return
        self._later(container, behaviour.dead, self._not_alive)
        if behaviour.post_start is not None:
            self._later(container, behaviour.post_start, self._hooked, "post_start")

    def _later(self, place: Place, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        if place in self._runs:
            self.at(seconds, partial(call, place, self._runs[place], *arguments))

    def _end(self, container: Place, run: ProgramRun, code: int) -> None:
        if self._runs.get(container) is run:
            del self._runs[container]
            self._notify(changes.container_exited, *container, lambda: (self.now, code, "Error", ""))

    def _probe(self, container: Place, run: ProgramRun, ready: bool) -> None:
        if self._runs.get(container) is run:
            run.ready = ready
            self._notify(changes.readiness_changed, *container, lambda: (ready, self.now, "" if ready else "HTTP 503"))

    def _not_alive(self, container: Place, run: ProgramRun) -> None:
        if self._runs.get(container) is run:
            run.dead = True
            self._notify(changes.liveness_failed, *container, lambda: (self.now, "no answer"))

    def _hooked(self, container: Place, run: ProgramRun, hook: changes.HookName) -> None:
        if self._runs.get(container) is run:
            run.greets = run.greets and hook != "post_start"
            self._notify(changes.hook_finished, *container, lambda: (hook, "", self.now))

    def _notify(
        self, change: Callable[..., Replica], name: str, container: str, rest: Callable[[], tuple[object, ...]]
    ) -> None:
        def notify() -> None:
            self._change(change, name, container, *rest())

        if self._deferred is None:
            notify()
        elif change is changes.container_exited:
            self._deferred.append(notify)
        else:
            # Probes are asked anew only once the daemon is back and has decided.
            run = self._runs.get((name, container))
            again = partial(self._if_still, (name, container), run, notify)
            self._deferred.append(lambda: self.at(0.0, again))

    def _if_still(self, place: Place, run: ProgramRun | None, notify: Callable[[], None]) -> None:
        if self._runs.get(place) is run:
            notify()

    def _change(self, change: Callable[..., Replica], name: str, container: str, *rest: object) -> None:
        if name in self.replicas:
            before = self.replicas[name]
            self.replicas[name] = change(before, container, *rest)

    def _behaviour(self, replica: Replica) -> Behaviour:
        return self._behaviours[replica.version]
