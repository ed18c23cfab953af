"""Capacity AI in force: the limits of running containers follow the recommendations, where a runtime can change them.

A container starts with the limits of its manifest. They become lower only by a recommendation and only as far as its
use permits, and higher as soon as its use comes near to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.capacity import HEADROOM, MEBIBYTE, Amount, whole
from reconciler.engines.host.autoscaling.metrics import Used
from reconciler.engines.host.decisions.replica import Container, Phase, Replica
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.workload.spec import ContainerSpec, WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason

NEAR = 0.9
"""The part of a limit above which its use is near to it: CPU then doubles, and memory gets all of the manifest."""
HYSTERESIS = 0.9
"""Limits become lower only if they fall below this part of what they are."""
RETRY_SECONDS = 300.0
"""Seconds until limits that the runtime refused are tried again."""
SPARED_SECONDS = 86_400.0
"""Seconds in which the memory of a container is not lowered again that has exceeded a lowered limit."""

_decode = msgspec.json.Decoder(dict[str, Amount]).decode


class ResizingRuntime(Protocol):
    """The part of a runtime that changes limits; ``resizes`` is whether it can."""

    resizes: bool

    async def resize(self, place: ContainerId, cpu: int, memory: int) -> None:
        """As Runtime.resize."""


def next_limits(spec: ContainerSpec, advised: Amount | None, limits: Amount, used: Used | None) -> Amount:
    """The limits that a container gets that has ``limits``; ``advised`` is None without a recommendation.

    At most the amounts of the manifest. Without ``used``, none becomes lower.
    """
    full = Amount(spec.cpu, spec.memory)
    wanted = advised or full
    if used is None:
        return Amount(max(wanted.cpu, limits.cpu), max(wanted.memory, limits.memory))
    cpu, memory = whole(used.cpu * HEADROOM, 1), whole(used.memory * HEADROOM, MEBIBYTE)
    if used.cpu >= NEAR * limits.cpu:
        cpu = max(cpu, 2 * limits.cpu)
    if used.memory >= NEAR * limits.memory:
        memory = full.memory
    found = Amount(min(max(wanted.cpu, cpu), full.cpu), min(max(wanted.memory, memory), full.memory))
    return Amount(_steady(limits.cpu, found.cpu), _steady(limits.memory, found.memory))


def _steady(now: int, wanted: int) -> int:
    return wanted if wanted > now or wanted < HYSTERESIS * now else now


class _Lowered(NamedTuple):
    """The limits that a container got since its start ``started``; None: an earlier daemon gave them."""

    limits: Amount
    started: float | None


class CapacityLimits:
    """The limits that the containers of a location got by Capacity AI; ``file`` has them for the next daemon."""

    def __init__(self, runtime: ResizingRuntime, clock: Clock, signals: LocationSignals, file: Path) -> None:
        self._runtime = runtime
        self._clock = clock
        self._signals = signals
        self._file = file
        self._lowered = {_place(name): _Lowered(each, None) for name, each in _read(file).items()}
        self._retry_at: dict[ContainerId, float] = {}
        self._spared_until: dict[ContainerId, float] = {}
        self._errors: dict[ContainerId, str] = {}

    async def bring(
        self,
        wanted: WorkloadSpec,
        replicas: Iterable[Replica],
        advised: Mapping[str, Amount],
        used: Mapping[ContainerId, Used],
    ) -> None:
        """Bring the running containers of a workload to the limits that they should have."""
        if not self._runtime.resizes:
            return
        before, changed, there = dict(self._lowered), list[str](), set[ContainerId]()
        for replica in (each for each in replicas if each.ending is None and each.version == wanted.version):
            running = {each.name: each for each in replica.containers if each.phase is Phase.RUNNING}
            for spec in (each for each in wanted.containers if each.name in running):
                place = ContainerId(wanted.key, replica.name, spec.name)
                there.add(place)
                limits = self._limits(place, running[spec.name], spec)
                found = next_limits(spec, advised.get(spec.name), limits, used.get(place))
                if place in self._spared_until and self._clock.monotonic() < self._spared_until[place]:
                    found = Amount(found.cpu, max(found.memory, limits.memory))
                if await self._give(place, found, limits, running[spec.name]):
                    changed.append(f"{place.replica}/{spec.name}: {_text(limits)} → {_text(found)}")
        self._forget_others(wanted, there)
        if changed:
            self._signals.report(wanted.key, Reason.LIMITS_CHANGED, "; ".join(changed))
        if self._lowered != before:
            self._write()

    def problems(self, wanted: WorkloadSpec, advised: Mapping[str, Amount]) -> Iterator[str]:
        """A sentence for each recommendation that is not in force."""
        for spec in wanted.containers:
            found = advised.get(spec.name)
            if found is None or (found.cpu >= HYSTERESIS * spec.cpu and found.memory >= HYSTERESIS * spec.memory):
                continue
            errors = (
                text for place, text in self._errors.items() if (place.key, place.container) == (wanted.key, spec.name)
            )
            if not self._runtime.resizes:
                yield _not_in_force(spec.name, "programs get their limits at their start only")
            elif (why := next(errors, None)) is not None:
                yield _not_in_force(spec.name, why)

    def _limits(self, place: ContainerId, container: Container, spec: ContainerSpec) -> Amount:
        """The limits that a container has now: a start gives it those of the manifest."""
        lowered = self._lowered.get(place)
        if lowered is not None and lowered.started not in (None, container.started):
            del self._lowered[place]
            if container.last is not None and container.last.reason == Reason.OUT_OF_MEMORY:
                self._spared_until[place] = self._clock.monotonic() + SPARED_SECONDS
            lowered = None
        return lowered.limits if lowered is not None else Amount(spec.cpu, spec.memory)

    async def _give(self, place: ContainerId, found: Amount, limits: Amount, container: Container) -> bool:
        """Give a container the limits ``found``; whether that is a change that succeeded."""
        now = self._clock.monotonic()
        if found == limits or now < self._retry_at.get(place, 0.0):
            return False
        try:
            await self._runtime.resize(place, found.cpu, found.memory)
        except EngineError as error:
            self._retry_at[place], self._errors[place] = now + RETRY_SECONDS, str(error)
            return False
        self._errors.pop(place, None)
        self._lowered[place] = _Lowered(found, container.started)
        return True

    def _forget_others(self, wanted: WorkloadSpec, there: set[ContainerId]) -> None:
        """Forget the containers of a workload that do not run."""
        for known in (self._lowered, self._retry_at, self._errors):
            for place in [each for each in known if each.key == wanted.key and each not in there]:
                del known[place]

    def _write(self) -> None:
        # Without the file, a later daemon takes the limits for those of the manifest, and lowers them again.
        content = {_name(place): each.limits for place, each in self._lowered.items()}
        with suppress(EngineError):
            write_atomic(self._file, msgspec.json.encode(content), 0o600)


def _read(file: Path) -> dict[str, Amount]:
    try:
        return _decode(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}


def _name(place: ContainerId) -> str:
    return "/".join((place.key.gvc, place.key.name, place.replica, place.container))


def _place(name: str) -> ContainerId:
    gvc, workload, replica, container = name.split("/")
    return ContainerId(Key(Kind.WORKLOAD, gvc, workload), replica, container)


def _text(amount: Amount) -> str:
    return f"CPU {amount.cpu}m and {amount.memory // MEBIBYTE} MiB"


def _not_in_force(container: str, why: str) -> str:
    return f"The recommended limits of the container {container} are not in force: {why}."
