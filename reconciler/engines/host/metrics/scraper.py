"""Scrapes all containers of a location that declare metrics, each every 30 seconds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol
from zlib import crc32

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.decisions.replica import Phase, Replica
from reconciler.engines.host.metrics.exposition import TARGET_LABELS
from reconciler.engines.host.metrics.scrape import scrape_target
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.target_metrics import TargetMetrics, label_text
from reconciler.engines.workload.environment import PlatformEnvContext
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.settings import MetricsSettings
from reconciler.tasks import cancel_and_wait

INTERVAL = 30.0
"""Seconds between two scrapes of a container (docs/platform/workload.md#metrics)."""
CHECK = 2.0
"""Seconds between two checks for containers that are due."""
PARALLEL = 100
"""The most scrapes at once: each takes a file of the daemon."""
FAILURES = 3
"""Failed scrapes in a row after which there is an event; a container may start slowly."""


class ScrapeTarget(msgspec.Struct, frozen=True):
    """A running container with metrics at ``port`` of this host, and the text of the labels of its series."""

    place: ContainerId
    port: int
    path: str
    labels: str


class TargetSource(Protocol):
    """What there is to scrape."""

    def targets(self) -> Iterable[ScrapeTarget]:
        """The targets now."""


class KnownReplicas(Protocol):
    """The replicas of a location."""

    def all_replicas(self) -> Iterable[Replica]:
        """All of them, the ending ones included."""


class RunningTargets(msgspec.Struct, frozen=True):
    """The running containers with metrics of ``replicas``, by the newest templates."""

    replicas: KnownReplicas
    templates: Mapping[Key, ReplicaTemplate]

    def targets(self) -> Iterator[ScrapeTarget]:
        """The containers until they get their SIGTERM."""
        return find_targets(self.replicas.all_replicas(), self.templates)


class Scraper(LocationPart):
    """The last scrape of each target of ``source``. Nothing is scraped without an address in the settings."""

    def __init__(self, settings: MetricsSettings, source: TargetSource, clock: Clock, signals: LocationSignals) -> None:
        self._settings = settings
        self._source = source
        self._clock = clock
        self._found: dict[ContainerId, TargetMetrics] = {}
        self._due: dict[ContainerId, float] = {}
        self._starting: dict[ContainerId, float] = {}
        self._outages = _Outages(signals)
        self._scraping: dict[ContainerId, asyncio.Task[None]] = {}
        self._free = asyncio.Semaphore(PARALLEL)

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Scrapes what there is, each target every 30 seconds."""
        return (self._run(),) if self._settings.address else ()

    async def _run(self) -> None:
        try:
            while True:
                with contain_bugs("scraping of metrics"):
                    self._start_due({target.place: target for target in self._source.targets()})
                await self._clock.sleep(CHECK)
        finally:
            await cancel_and_wait(self._scraping.values(), "scraping of metrics")

    def results(self) -> list[TargetMetrics]:
        """The last scrape of each target, in order of their names."""
        return [self._found[container_id] for container_id in sorted(self._found)]

    def limitations(self, template: ReplicaTemplate) -> Iterator[str]:
        """A sentence if a workload has metrics, and the settings have no address for them."""
        if not self._settings.address and any(container.metrics for container in template.desired.containers):
            yield "Metrics are not scraped: the settings have no host.metrics.address."

    def _start_due(self, targets: Mapping[ContainerId, ScrapeTarget]) -> None:
        for container_id in self._due.keys() - targets.keys():
            del self._due[container_id]
            self._found.pop(container_id, None)
            self._starting.pop(container_id, None)
            self._outages.forget(container_id)
        now = self._clock.monotonic()
        for container_id in targets.keys() - self._due.keys():
            self._starting[container_id] = now + INTERVAL
        for container_id, target in targets.items():
            if now >= self._due.get(container_id, now) and container_id not in self._scraping:
                self._due[container_id] = next_due(container_id, now)
                task = asyncio.create_task(self._scrape(target), name=f"scrape of {container_id}")
                self._scraping[container_id] = task
                task.add_done_callback(partial(self._remove, container_id))

    def _remove(self, container_id: ContainerId, _: asyncio.Task[None]) -> None:
        del self._scraping[container_id]

    async def _scrape(self, target: ScrapeTarget) -> None:
        container_id = target.place
        with contain_bugs(f"scrape of {container_id}"):
            async with self._free:
                metrics = self._within_budget(
                    container_id, await scrape_target(target.port, target.path, target.labels)
                )
            if container_id not in self._due:
                return
            self._found[container_id] = metrics
            if metrics.error and self._clock.monotonic() < self._starting.get(container_id, 0.0):
                self._due[container_id] = 0.0  # it may not listen yet: the next check tries again
                return
            self._starting.pop(container_id, None)
            self._outages.note(target, metrics.error)

    def _within_budget(self, target_id: ContainerId, target_metrics: TargetMetrics) -> TargetMetrics:
        """``target_metrics``, or the failure that the metrics of all targets together would be too large."""
        others = sum(metrics.size for container_id, metrics in self._found.items() if container_id != target_id)
        if others + target_metrics.size <= self._settings.budget << 20:
            return target_metrics
        error = f"with it, all metrics of the location exceed host.metrics.budget, {self._settings.budget} MiB"
        return TargetMetrics(target_metrics.labels, error=error, seconds=target_metrics.seconds)


class _Outages:
    """An event when a container of a workload can no longer be scraped, and one when it can in all replicas again."""

    def __init__(self, signals: LocationSignals) -> None:
        self._signals = signals
        self._failures: dict[ContainerId, int] = {}
        self._reported: set[tuple[Key, str]] = set()

    def note(self, target: ScrapeTarget, error: str) -> None:
        """Take the result of a scrape; ``error`` is "" if it succeeded."""
        source = target.place
        self._failures[source] = self._failures.get(source, 0) + 1 if error else 0
        failing = [
            container_id
            for container_id, count in self._failures.items()
            if count >= FAILURES and _is_same_container(container_id, source)
        ]
        about = source.key, source.container
        if error and failing and about not in self._reported:
            self._reported.add(about)
            text = f"{source.replica}: the metrics of {source.container} at {target.path} cannot be scraped: {error}"
            self._signals.report(source.key, Reason.SCRAPE_FAILED, text)
        elif not failing and about in self._reported:
            self._reported.remove(about)
            text = f"the metrics of {source.container} are scraped again"
            self._signals.report(source.key, Reason.SCRAPE_RECOVERED, text)

    def forget(self, container_id: ContainerId) -> None:
        """Forget a container that does not run any more; with the last one, the outage is over without an event."""
        self._failures.pop(container_id, None)
        if not any(_is_same_container(failure, container_id) for failure in self._failures):
            self._reported.discard((container_id.key, container_id.container))


def _is_same_container(one: ContainerId, other: ContainerId) -> bool:
    return one.key == other.key and one.container == other.container


def next_due(container_id: ContainerId, now: float) -> float:
    """When a container that is scraped at ``now`` is due again: all in a grid, so that their load is spread."""
    offset = crc32(str(container_id).encode()) / 2**32 * INTERVAL
    return offset + ((now - offset) // INTERVAL + 1) * INTERVAL


def find_targets(replicas: Iterable[Replica], templates: Mapping[Key, ReplicaTemplate]) -> Iterator[ScrapeTarget]:
    """The running containers of ``replicas`` that have metrics, until they get their SIGTERM."""
    for replica in replicas:
        template = templates.get(replica.key)
        for container in replica.containers if template is not None else ():
            metrics = container.wanted.metrics
            running = container.phase is Phase.RUNNING and container.sigterm_at is None
            # An earlier daemon assigned no port for metrics.
            if metrics is not None and running and metrics.port in replica.ports and template is not None:
                container_id = ContainerId(replica.key, replica.name, container.name)
                labels = label_text(_make_labels(container_id, template.env_context))
                yield ScrapeTarget(container_id, replica.ports[metrics.port], metrics.path, labels)


def _make_labels(container_id: ContainerId, context: PlatformEnvContext) -> dict[str, str]:
    values = {
        "org": context.org,
        "gvc": context.gvc,
        "location": context.location,
        "provider": context.provider,
        "region": context.region,
        "cluster_id": os.uname().nodename,
        "workload": container_id.key.name,
        "replica": container_id.replica,
        "container": container_id.container,
    }
    return {name: values[name] for name in TARGET_LABELS}
