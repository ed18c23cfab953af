"""The metrics of the daemon, from its records: the table of all metrics, and the page that Prometheus reads.

Labels are sources, locations, kinds and reasons. Resources would make a series for each, so that only those in the
setting `api.metrics.resources` are a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from reconciler.daemon.measurements import Measurements
from reconciler.engines.reading import ReplicaRow, ReplicaState
from reconciler.engines.volumes import newest_snapshot, read_volumes
from reconciler.model.key import Kind
from reconciler.records.store import Records
from reconciler.records.tables.runs import Run
from reconciler.times import parse_time

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""The media type of the page."""


class Scrape(NamedTuple):
    """What the samples of one page come from; ``now`` is in seconds since the epoch."""

    records: Records
    sources: tuple[str, ...]
    is_alive: bool
    now: float
    host_locations: tuple[str, ...] = ()
    replicas: Sequence[ReplicaRow] = ()
    measured: Measurements = Measurements()
    resources: tuple[str, ...] = ()


class Sample(NamedTuple):
    """A value, and the values of the labels of its metric."""

    labels: tuple[str, ...]
    value: float


class Metric(NamedTuple):
    """A metric; the names of counters end in ``_total``."""

    name: str
    description: str
    labels: tuple[str, ...]
    samples: Callable[[Scrape], Iterable[Sample]]

    @property
    def type(self) -> str:
        """Its type in the words of Prometheus."""
        return "counter" if self.name.endswith("_total") else "gauge"


def _sample_liveness(scrape: Scrape) -> Iterator[Sample]:
    yield Sample((), scrape.is_alive)


def _sample_newest_run(scrape: Scrape) -> Iterator[Sample]:
    newest = scrape.records.runs.list(1)  # numbers increase by one, so no row of an earlier run is needed
    yield Sample((), newest[0].id if newest else 0)


def _last_runs(scrape: Scrape) -> Iterator[Run]:
    return (run for name in scrape.sources if (run := scrape.records.runs.last(name)) is not None)


def _sample_run_starts(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((run.source,), run.started) for run in _last_runs(scrape))


def _sample_run_durations(scrape: Scrape) -> Iterator[Sample]:
    for run in _last_runs(scrape):
        if run.finished is not None:
            yield Sample((run.source,), max(run.finished - run.started, 0))


def _sample_run_outcomes(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((run.source, run.outcome or "running"), 1) for run in _last_runs(scrape))


def _sample_run_results(scrape: Scrape) -> Iterator[Sample]:
    for run in _last_runs(scrape):
        yield from (Sample((run.source, result), number) for result, number in run.counts.items())


def _sample_commit_times(scrape: Scrape) -> Iterator[Sample]:
    for name in scrape.sources:
        if (row := scrape.records.sources.get(name)) is not None:
            yield Sample((name,), row.time)


def _sample_resource_counts(scrape: Scrape) -> Iterator[Sample]:
    for name in scrape.sources:
        for (kind, health), number in scrape.records.applied.counts(name).items():
            yield Sample((name, str(kind), str(health)), number)


def _sample_drift_counts(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((name,), scrape.records.drifts.count(name)) for name in scrape.sources)


def _sample_conditions(scrape: Scrape) -> Iterator[Sample]:
    for name in scrape.sources:
        for condition in scrape.records.conditions.get(name):
            yield Sample((name, condition.type, condition.reason), condition.status)


def _condition_times(scrape: Scrape) -> Iterator[Sample]:
    for name in scrape.sources:
        yield from (
            Sample((name, condition.type), condition.since) for condition in scrape.records.conditions.get(name)
        )


def _status_queue(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((name,), scrape.records.status_queue.count(name)) for name in scrape.sources)


def _sample_open_requests(scrape: Scrape) -> Iterator[Sample]:
    yield Sample((), len(scrape.records.requests.open()))


def _request_age(scrape: Scrape) -> Iterator[Sample]:
    waiting = scrape.records.requests.open()
    yield Sample((), max(scrape.now - waiting[0].at, 0) if waiting else 0)


def _sample_waiting_approvals(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((name,), len(scrape.records.approvals.waiting_digests(name, scrape.now))) for name in scrape.sources)


def _sample_replica_states(scrape: Scrape) -> Iterator[Sample]:
    counter = Counter((replica.location, replica.state) for replica in scrape.replicas)
    for location in scrape.host_locations:
        yield from (Sample((location, str(state)), counter[location, state]) for state in ReplicaState)


def _sample_engine_calls(scrape: Scrape) -> Iterator[Sample]:
    counter: Counter[tuple[str, ...]] = Counter()
    for call in scrape.measured.calls:
        counter[call.location, call.operation] += call.number
    return (Sample(labels, count) for labels, count in counter.items())


def _call_errors(scrape: Scrape) -> Iterator[Sample]:
    failed = (call for call in scrape.measured.calls if call.reason)
    return (Sample((total.location, total.operation, total.reason), total.number) for total in failed)


def _read_times(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((name,), at) for name, at in scrape.measured.read.items() if name in scrape.sources)


def _written_times(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((name,), at) for name, at in scrape.measured.written.items() if name in scrape.sources)


def _sample_trace_spans(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((result,), number) for result, number in scrape.measured.spans.items())


def _sample_resource_health(scrape: Scrape) -> Iterator[Sample]:
    for key, records in scrape.records.applied.get_many(scrape.resources, bodies=False).items():
        yield from (Sample((key, record.location, str(record.health)), 1) for record in records)


def _sample_resource_drift(scrape: Scrape) -> Iterator[Sample]:
    if scrape.resources:
        differing = {(row.key, row.location) for row in scrape.records.drifts.all()}
        for key, records in scrape.records.applied.get_many(scrape.resources, bodies=False).items():
            yield from (Sample((key, record.location), (key, record.location) in differing) for record in records)


def _resource_replicas(scrape: Scrape) -> Iterator[Sample]:
    counter = Counter((str(replica.key), replica.location, str(replica.state)) for replica in scrape.replicas)
    return (Sample(labels, number) for labels, number in counter.items() if labels[0] in scrape.resources)


def _newest_snapshots(scrape: Scrape) -> Iterator[Sample]:
    """Of each volume set, that of the volume whose newest one is the oldest."""
    for key, records in scrape.records.applied.get_many(scrape.resources, bodies=False).items():
        for record in records:
            state = read_volumes(record.state) if record.key.kind is Kind.VOLUMESET else None
            newest = [parse_time(at) for volume in (state.volumes if state else ()) if (at := newest_snapshot(volume))]
            if newest:
                yield Sample((key, record.location), min(newest))


def _proven_snapshots(scrape: Scrape) -> Iterator[Sample]:
    """Of each volume set, that of the volume whose last proof is the oldest; a volume without one has the time 0."""
    for key, records in scrape.records.applied.get_many(scrape.resources, bodies=False).items():
        for record in records:
            state = read_volumes(record.state) if record.key.kind is Kind.VOLUMESET else None
            proofs = [
                parse_time(volume.last_proven) if volume.last_proven else 0.0
                for volume in (state.volumes if state else ())
                if volume.volume_snapshots
            ]
            if proofs:
                yield Sample((key, record.location), min(proofs))


def _sample_backup_time(scrape: Scrape) -> Iterator[Sample]:
    taken = scrape.records.backups.get().taken
    if taken is not None:
        yield Sample((), taken)


_SOURCE = ("source",)

METRICS: tuple[Metric, ...] = (
    Metric("reconciler_loop_alive", "1 while the event loop of the daemon turns.", (), _sample_liveness),
    Metric("reconciler_runs_total", "Runs of all sources since the records were made.", (), _sample_newest_run),
    Metric(
        "reconciler_last_run_timestamp_seconds", "When the last run of the source started.", _SOURCE, _sample_run_starts
    ),
    Metric(
        "reconciler_last_run_duration_seconds",
        "How long the last run of the source took.",
        _SOURCE,
        _sample_run_durations,
    ),
    Metric(
        "reconciler_last_run_outcome",
        "1, with the outcome of the last run.",
        ("source", "reason"),
        _sample_run_outcomes,
    ),
    Metric(
        "reconciler_last_run_resources",
        "Resources in the plan of the last run, by result.",
        ("source", "reason"),
        _sample_run_results,
    ),
    Metric(
        "reconciler_source_commit_timestamp_seconds",
        "The time of the commit that was read last.",
        _SOURCE,
        _sample_commit_times,
    ),
    Metric(
        "reconciler_source_read_timestamp_seconds",
        "When the source was last read, since the daemon began.",
        _SOURCE,
        _read_times,
    ),
    Metric(
        "reconciler_status_written_timestamp_seconds",
        "When the status was last written to its branch, since the daemon began.",
        _SOURCE,
        _written_times,
    ),
    Metric(
        "reconciler_engine_calls_total",
        "Calls of engines by operation; they start at 0 with new settings.",
        ("location", "kind"),
        _sample_engine_calls,
    ),
    Metric(
        "reconciler_engine_errors_total",
        "Those of them that failed, by reason.",
        ("location", "kind", "reason"),
        _call_errors,
    ),
    Metric(
        "reconciler_spans_total",
        "Spans of traces: made, sent to the receiver, or failed to be sent.",
        ("reason",),
        _sample_trace_spans,
    ),
    Metric(
        "reconciler_resources",
        "Resources by kind, and by health as the reason.",
        ("source", "kind", "reason"),
        _sample_resource_counts,
    ),
    Metric(
        "reconciler_drifts", "Resources at locations that differ from what was applied.", _SOURCE, _sample_drift_counts
    ),
    Metric(
        "reconciler_approvals_waiting", "Groups of steps that wait for an approval.", _SOURCE, _sample_waiting_approvals
    ),
    Metric(
        "reconciler_replicas",
        "Replicas on this host, by state as the reason.",
        ("location", "reason"),
        _sample_replica_states,
    ),
    Metric(
        "reconciler_resource_health",
        "1, with the health of the resource as the reason.",
        ("resource", "location", "reason"),
        _sample_resource_health,
    ),
    Metric(
        "reconciler_resource_drifted",
        "1 if the resource at the location differs from what was applied.",
        ("resource", "location"),
        _sample_resource_drift,
    ),
    Metric(
        "reconciler_resource_replicas",
        "Replicas of the workload on this host, by state as the reason.",
        ("resource", "location", "reason"),
        _resource_replicas,
    ),
    Metric(
        "reconciler_resource_snapshot_timestamp_seconds",
        "When the newest snapshot of the volume set was taken, of its volume with the oldest.",
        ("resource", "location"),
        _newest_snapshots,
    ),
    Metric(
        "reconciler_resource_snapshot_proven_timestamp_seconds",
        "When a snapshot of the volume set was last proven, of its volume with the oldest proof; 0 for never.",
        ("resource", "location"),
        _proven_snapshots,
    ),
    Metric(
        "reconciler_condition",
        "A condition of the source: its type as the kind, 1 if it holds.",
        ("source", "kind", "reason"),
        _sample_conditions,
    ),
    Metric(
        "reconciler_condition_since_timestamp_seconds",
        "When the condition last began or ceased to hold.",
        ("source", "kind"),
        _condition_times,
    ),
    Metric(
        "reconciler_last_backup_timestamp_seconds",
        "When `reconciler backup` made the newest backup of the records; absent without one.",
        (),
        _sample_backup_time,
    ),
    Metric("reconciler_status_queue", "Resources whose status is not written to Git yet.", _SOURCE, _status_queue),
    Metric("reconciler_requests_waiting", "Requests of operators that are not done.", (), _sample_open_requests),
    Metric("reconciler_request_oldest_age_seconds", "The age of the oldest of them, 0 without any.", (), _request_age),
)
"""Every metric, in the order of the page."""


class _Page(Collector):
    """Gives prometheus_client the families of one scrape."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            family_type = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
            family = family_type(metric.name, metric.description, labels=metric.labels)
            for labels, value in metric.samples(self._scrape):
                family.add_metric(labels, float(value))
            yield family


def metrics_page(scrape: Scrape) -> bytes:
    """The page in the text format of Prometheus. Raises RecordsError."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(scrape))
    return generate_latest(registry)
