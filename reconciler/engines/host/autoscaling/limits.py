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
from reconciler.engines.host.autoscaling.capacity import HEADROOM, MEBIBYTE, Amount, round_up_amount
from reconciler.engines.host.autoscaling.metrics import Used
from reconciler.engines.host.decisions.replica import Phase, Replica, ReplicaContainer
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

    async def resize(self, container_id: ContainerId, cpu: int, memory: int) -> None:
        """As Runtime.resize."""


def next_limits(spec: ContainerSpec, advised: Amount | None, limits: Amount, used: Used | None) -> Amount:
    """The limits that a container gets that has ``limits``; ``advised`` is None without a recommendation.

    At most the amounts of the manifest. Without ``used``, none becomes lower.
    """
    full = Amount(spec.cpu, spec.memory)
    amount = advised or full
    if used is None:
        return Amount(max(amount.cpu, limits.cpu), max(amount.memory, limits.memory))
    cpu, memory = round_up_amount(used.cpu * HEADROOM, 1), round_up_amount(used.memory * HEADROOM, MEBIBYTE)
    if used.cpu >= NEAR * limits.cpu:
        cpu = max(cpu, 2 * limits.cpu)
    if used.memory >= NEAR * limits.memory:
        memory = full.memory
    target = Amount(min(max(amount.cpu, cpu), full.cpu), min(max(amount.memory, memory), full.memory))
    return Amount(_apply_hysteresis(limits.cpu, target.cpu), _apply_hysteresis(limits.memory, target.memory))


def _apply_hysteresis(now: int, target: int) -> int:
    return target if target > now or target < HYSTERESIS * now else now


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
        self._lowered = {
            _parse_container_id(name): _Lowered(amount, None) for name, amount in _read_amounts(file).items()
        }
        self._retry_at: dict[ContainerId, float] = {}
        self._spared_until: dict[ContainerId, float] = {}
        self._errors: dict[ContainerId, str] = {}

    async def bring(
        self,
        workload_spec: WorkloadSpec,
        replicas: Iterable[Replica],
        advised: Mapping[str, Amount],
        used: Mapping[ContainerId, Used],
    ) -> None:
        """Bring the running containers of a workload to the limits that they should have."""
        if not self._runtime.resizes:
            return
        before, changed, there = dict(self._lowered), list[str](), set[ContainerId]()
        for replica in (
            replica for replica in replicas if replica.ending is None and replica.version == workload_spec.version
        ):
            running = {
                container.name: container for container in replica.containers if container.phase is Phase.RUNNING
            }
            for spec in (container for container in workload_spec.containers if container.name in running):
                container_id = ContainerId(workload_spec.key, replica.name, spec.name)
                there.add(container_id)
                limits = self._limits(container_id, running[spec.name], spec)
                amount = next_limits(spec, advised.get(spec.name), limits, used.get(container_id))
                if container_id in self._spared_until and self._clock.monotonic() < self._spared_until[container_id]:
                    amount = Amount(amount.cpu, max(amount.memory, limits.memory))
                if await self._give(container_id, amount, limits, running[spec.name]):
                    changed.append(
                        f"{container_id.replica}/{spec.name}: {_format_amount(limits)} → {_format_amount(amount)}"
                    )
        self._forget_others(workload_spec, there)
        if changed:
            self._signals.report(workload_spec.key, Reason.LIMITS_CHANGED, "; ".join(changed))
        if self._lowered != before:
            self._write()

    def problems(self, workload_spec: WorkloadSpec, advised: Mapping[str, Amount]) -> Iterator[str]:
        """A sentence for each recommendation that is not in force."""
        for spec in workload_spec.containers:
            amount = advised.get(spec.name)
            if amount is None or (amount.cpu >= HYSTERESIS * spec.cpu and amount.memory >= HYSTERESIS * spec.memory):
                continue
            errors = (
                text
                for container_id, text in self._errors.items()
                if (container_id.key, container_id.container) == (workload_spec.key, spec.name)
            )
            if not self._runtime.resizes:
                yield _not_in_force(spec.name, "programs get their limits at their start only")
            elif (why := next(errors, None)) is not None:
                yield _not_in_force(spec.name, why)

    def _limits(self, container_id: ContainerId, container: ReplicaContainer, spec: ContainerSpec) -> Amount:
        """The limits that a container has now: a start gives it those of the manifest."""
        lowered = self._lowered.get(container_id)
        if lowered is not None and lowered.started not in (None, container.started):
            del self._lowered[container_id]
            if container.last is not None and container.last.reason == Reason.OUT_OF_MEMORY:
                self._spared_until[container_id] = self._clock.monotonic() + SPARED_SECONDS
            lowered = None
        return lowered.limits if lowered is not None else Amount(spec.cpu, spec.memory)

    async def _give(
        self, container_id: ContainerId, amount: Amount, limits: Amount, container: ReplicaContainer
    ) -> bool:
        """Give a container the limits ``amount``; whether that is a change that succeeded."""
        now = self._clock.monotonic()
        if amount == limits or now < self._retry_at.get(container_id, 0.0):
            return False
        try:
            await self._runtime.resize(container_id, amount.cpu, amount.memory)
        except EngineError as error:
            self._retry_at[container_id], self._errors[container_id] = now + RETRY_SECONDS, str(error)
            return False
        self._errors.pop(container_id, None)
        self._lowered[container_id] = _Lowered(amount, container.started)
        return True

    def _forget_others(self, spec: WorkloadSpec, there: set[ContainerId]) -> None:
        """Forget the containers of a workload that do not run."""
        for containers in (self._lowered, self._retry_at, self._errors):
            for stale in [
                container_id
                for container_id in containers
                if container_id.key == spec.key and container_id not in there
            ]:
                del containers[stale]

    def _write(self) -> None:
        # Without the file, a later daemon takes the limits for those of the manifest, and lowers them again.
        content = {
            _format_container_id(container_id): lowered.limits for container_id, lowered in self._lowered.items()
        }
        with suppress(EngineError):
            write_atomic(self._file, msgspec.json.encode(content), 0o600)


def _read_amounts(file: Path) -> dict[str, Amount]:
    try:
        return _decode(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}


def _format_container_id(container_id: ContainerId) -> str:
    return "/".join((container_id.key.gvc, container_id.key.name, container_id.replica, container_id.container))


def _parse_container_id(name: str) -> ContainerId:
    gvc, workload, replica, container = name.split("/")
    return ContainerId(Key(Kind.WORKLOAD, gvc, workload), replica, container)


def _format_amount(amount: Amount) -> str:
    return f"CPU {amount.cpu}m and {amount.memory // MEBIBYTE} MiB"


def _not_in_force(container: str, why: str) -> str:
    return f"The recommended limits of the container {container} are not in force: {why}."
