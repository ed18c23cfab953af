"""A week of traffic of a location under a fake clock: the real metrics and decisions, and replicas that start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from reconciler.engines.host.autoscaling.decide import get_interval
from reconciler.engines.host.autoscaling.metrics import MetricSources
from reconciler.engines.host.autoscaling.request_metrics import SAMPLE, RequestMetrics
from reconciler.engines.host.autoscaling.scaling import Autoscaler
from reconciler.engines.host.dataplane.protocol import LatencyListener, Traffic
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import read_specification
from reconciler.reasons import Reason
from tests.engines.host.provisioning.kit import around, body
from tests.support.clock import FakeClock

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY = 86_400
START_SECONDS = 4.0
REQUEST_SECONDS = 0.5

Changes = list[tuple[int, Any]]
"""Seconds since Monday 00:00:00, and what is so from then on."""


def second_of(text: str, day: int) -> int:
    """``09:00:14`` of the day with that number."""
    hours, minutes, seconds = map(int, text.split(":"))
    return day * DAY + hours * 3600 + minutes * 60 + seconds


def entries(lines: list[str]) -> Changes:
    """``Mon-Fri 09:00:14 4`` is five entries; all in order of time."""
    changes: Changes = []
    for line in lines:
        days, time, value = line.split()
        first, _, last = days.partition("-")
        changes += [(second_of(time, day), value) for day in range(DAYS.index(first), DAYS.index(last or first) + 1)]
    return sorted(changes)


def times(lines: list[str]) -> list[int]:
    """The seconds of ``Thu 11:00:00``."""
    return [at for at, _ in entries([f"{line} ." for line in lines])]


class SimulatedWorkload:
    """A workload of the week: its requests, its replicas, and what was observed of it."""

    def __init__(self, name: str, case: Mapping[str, Any]) -> None:
        self.name = name
        self.key = Key(Kind.WORKLOAD, "shop", name)
        container = {"name": "main", "image": "a:1", "ports": [{"number": 8080}]}
        options = {"autoscaling": case["autoscaling"], "capacityAI": False}
        spec = read_specification(body({"type": case["type"], "containers": [container], "defaultOptions": options}))
        desired = workload_spec(AppliedWorkload(self.key, "here", spec, 1, "digest"), "hash")
        self.template = ReplicaTemplate(desired, spec, around())
        self.every = get_interval(desired)
        self.bounds = (desired.options.autoscaling.min_scale, desired.options.autoscaling.max_scale)
        self.target = desired.options.autoscaling.target
        self.rates = [(at, float(value)) for at, value in entries(case["rates"])]
        self.outage = times(case["outage"])
        self.answers = case.get("answers", 0)
        self.replicas: list[Replica] = []
        self.ready: list[Replica] = []
        self.changes: Changes = []
        self.arrived, self.waiting, self.active, self.active_seconds = 0.0, 0.0, 0.0, 0.0
        self._number = 0

    def rate(self, now: float) -> float:
        """Requests a second in the step that ends ``now``."""
        while len(self.rates) > 1 and self.rates[1][0] < now:
            del self.rates[0]
        return self.rates[0][1]

    def step(self, now: float) -> float:
        """What happens in the last two seconds; returns the milliseconds of its answers, 0 without one."""
        if len(self.ready) < len(self.replicas):
            self.replicas = [_started(each, now) for each in self.replicas]
            self.ready = [each for each in self.replicas if each.ready_since is not None]
        rate = self.rate(now)
        came = rate * SAMPLE
        self.arrived += came
        if not self.ready:
            self.waiting, self.active = self.waiting + came, 0.0
            return 0.0
        served, self.waiting = self.waiting + came, 0.0
        self.active_seconds += served * REQUEST_SECONDS
        self.active = served * REQUEST_SECONDS / SAMPLE
        return self.answers * rate / len(self.ready) if served else 0.0

    def scale(self, count: int, now: float) -> None:
        """Start or stop replicas, the newest first."""
        if self.changes and count == self.changes[-1][1]:
            return
        self.changes.append((round(now), count))
        del self.replicas[count:]
        while len(self.replicas) < count:
            self._number += 1
            name = f"{self.name}-{self._number}"
            self.replicas.append(Replica(name, self.key, 1, "hash", now, ()))
        self.ready = [each for each in self.replicas if each.ready_since is not None]


def _started(replica: Replica, now: float) -> Replica:
    if replica.ready_since is not None or now < replica.created + START_SECONDS:
        return replica
    return msgspec.structs.replace(replica, ready_since=now)


class Week:
    """All workloads of ``cases`` at one location from ``begin`` on, and the data plane that counts their requests."""

    metrics = frozenset({"rps", "concurrency", "latency"})

    def __init__(self, cases: Mapping[str, Mapping[str, Any]], begin: int = 0) -> None:
        self.simulated_workloads = [SimulatedWorkload(name, case) for name, case in cases.items()]
        self.events: dict[str, Changes] = {simulated.name: [] for simulated in self.simulated_workloads}
        self._clock = FakeClock()
        self._clock.block(begin)
        self._listener: LatencyListener = lambda *_: None
        self._lost = False
        self._requests = RequestMetrics(self, self._clock)
        self._autoscaler = Autoscaler(MetricSources((self._requests,)), self._clock, WeekSignals(self))

    async def traffic(self) -> dict[Key, Traffic]:
        """As DataPlane.traffic."""
        if self._lost:
            raise EngineError("the proxy does not answer")
        return {
            each.key: Traffic(round(each.arrived), round(each.active), round(each.waiting), each.active_seconds)
            for each in self.simulated_workloads
        }

    def listen(self, listener: LatencyListener) -> None:
        """As DataPlane.listen."""
        self._listener = listener

    async def run(self, end: int, check: Check) -> None:
        """Let the seconds until ``end`` pass, and ``check`` each decision: the workload, the number before, and now."""
        for simulated in self.simulated_workloads:
            self._decide(simulated, check)
        now = round(self._clock.monotonic())
        while now < end:
            step = 1 if now % 30 in (14, 15) else 2
            now += step
            self._clock.block(step)
            if now % 2 == 0:
                await self._sample(now, check)
            for simulated in self.simulated_workloads:
                if now % simulated.every == 0:
                    self._decide(simulated, check)

    async def _sample(self, now: int, check: Check) -> None:
        for simulated in self.simulated_workloads:
            milliseconds = simulated.step(now)
            begin, end = simulated.outage
            self._lost = begin < now < end
            if milliseconds and not self._lost:
                for replica in simulated.ready:
                    self._listener(simulated.key, replica.name, milliseconds)
            if simulated.waiting and not simulated.replicas and not self._lost:
                self._requests.wake(simulated.key)
                self._decide(simulated, check)
        with suppress(EngineError):
            await self._requests.collect()

    def _decide(self, simulated: SimulatedWorkload, check: Check) -> None:
        before, now = len(simulated.replicas), self._clock.monotonic()
        simulated.scale(self._autoscaler.spec_at_scale(simulated.template, simulated.replicas).replicas, now)
        check(simulated, before, now)

    def note(self, key: Key, reason: Reason) -> None:
        """Remember when a metric had no value, and when it had one again."""
        if reason in (Reason.SCALING_UNKNOWN, Reason.SCALING_KNOWN):
            self.events[key.name].append((round(self._clock.monotonic()), str(reason)))


class WeekSignals(LocationSignals):
    """Signals of a week: its events."""

    def __init__(self, week: Week) -> None:
        super().__init__()
        self._week = week

    def report(self, key: Key, reason: Reason, _message: str) -> None:
        """An event."""
        self._week.note(key, reason)


Check = Callable[[SimulatedWorkload, int, float], None]
