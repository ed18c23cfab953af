"""Recorded resources: lists of them, the status of sources, and all that is known about one resource."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

import msgspec

from reconciler.errors import NotFoundError
from reconciler.iteration import iterate_batches
from reconciler.model.cron import Cron, CronError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import read_specification
from reconciler.model.record import Record
from reconciler.queries.existence import check_gvc, check_key, did_you_mean
from reconciler.records.store import Records
from reconciler.records.tables.applied import BATCH
from reconciler.records.tables.commands import StoredCommand
from reconciler.records.tables.events import Event
from reconciler.settings import Settings
from reconciler.status.conditions import ResourceFacts
from reconciler.status.facts import FactsReader
from reconciler.status.source_status import SourceStatus, read_source_status

_COMMANDS = 5
"""The most commands of a description."""
_EVENTS = 10
"""The most events of a description."""
_MOST_TIMES = 10
"""The next times that are listed."""
_MINUTE = 60


class _Schedule(NamedTuple):
    """The schedule of a cron workload, its next times (seconds since the epoch), and why there are none ("")."""

    expression: str
    times: Sequence[float]
    obstacle: str = ""


class ListedResource(NamedTuple):
    """A resource of a list; ``created`` is when it was first applied, in seconds since the epoch."""

    facts: ResourceFacts
    created: float


class ResourceDetails(NamedTuple):
    """All that is known about a resource, with its last commands, newest first, and its last events, oldest first.

    ``next_runs`` are the next times of a cron workload, in seconds since the epoch; ``no_runs`` says why it has none.
    ``last_line`` is what a workload wrote before it ended with an error, where the reader may read logs.
    """

    facts: ResourceFacts
    commands: Sequence[StoredCommand]
    events: Sequence[Event]
    next_runs: Sequence[float] = ()
    no_runs: str = ""
    last_line: str = ""


def find_resources(
    settings: Settings, records: Records, kind: Kind | None, gvc: str | None, name: str | None
) -> Iterator[ListedResource]:
    """The recorded resources of ``kind``, in ``gvc``, called ``name`` (None: any), in order of their keys.

    Raises NotFoundError, before the first result, if a named GVC or resource does not exist or is not applied yet.
    """
    listed = _list_resources(settings, records, records.applied.items(kind, gvc, name))
    first = next(listed, None)
    if first is None:
        _check_exists(records, kind, gvc, name)
        return iter(())
    return chain([first], listed)


def _list_resources(settings: Settings, records: Records, applied: Iterable[Record]) -> Iterator[ListedResource]:
    """Each resource in ``applied``, which has the records of all its locations."""
    reader = FactsReader(records, settings)
    grouped = ((key, tuple(same)) for key, same in groupby(applied, lambda record: record.key))
    for batch in iterate_batches(grouped, BATCH):
        reader.expect_applied((str(key) for key, _ in batch), {str(key): same for key, same in batch})
        created = records.applied.creation_times(key for key, _ in batch)
        for key, same in batch:
            yield ListedResource(reader.facts(key), created.get(str(key), same[0].applied_at))


def list_keys(settings: Settings, records: Records, keys: Sequence[str]) -> Iterator[ListedResource]:
    """The recorded resources ``keys``, in this order; those that are not recorded are left out."""
    present = records.applied.get_many(keys)
    return _list_resources(settings, records, chain.from_iterable(present[key] for key in keys if key in present))


def read_tags(applied: Sequence[Record]) -> Mapping[str, Any]:
    """The tags of the resource with the records ``applied``, as it was last applied; {} without any."""
    newest = max(applied, key=lambda record: record.applied_at, default=None)
    return {} if newest is None else msgspec.json.decode(newest.body, type=_TaggedBody).tags or {}


class _TaggedBody(msgspec.Struct):
    tags: dict[str, Any] | None = None


def list_sources(settings: Settings, records: Records) -> list[SourceStatus]:
    """The status of each source in the settings."""
    return [read_source_status(records, source.name) for source in settings.sources]


def describe_resource(settings: Settings, records: Records, key: Key, now: float) -> ResourceDetails:
    """All that is known about ``key`` at ``now``. Raises NotFoundError if it does not exist, or no longer exists."""
    facts = FactsReader(records, settings).facts(key)
    if not facts.exists:
        check_key(records, key)
        raise NotFoundError(f"{key} was deleted; see: reconciler events {key}")
    commands = records.commands.list(key, limit=_COMMANDS)
    schedule = _read_schedule(facts, now) if key.kind is Kind.WORKLOAD else None
    times, obstacle = (schedule.times, schedule.obstacle) if schedule is not None else ((), "")
    return ResourceDetails(facts, commands, records.events.list(key, limit=_EVENTS), times, obstacle)


def _read_schedule(facts: ResourceFacts, now: float) -> _Schedule | None:
    """The schedule of the workload with ``facts``, from ``now`` on; None if it is none of the type cron.

    Schedules are in UTC. What an operator suspended goes on: only the workload itself ends its schedule.
    """
    body = max(facts.records, key=lambda record: record.applied_at, default=None)
    spec = read_specification(body.body) if body is not None else None
    if spec is None or spec.type != "cron" or spec.job is None:
        return None
    if spec.job.suspend or spec.default_options.suspend:
        return _Schedule(spec.job.schedule, (), "its manifest suspends it")
    try:
        cron = Cron.parse(spec.job.schedule)
    except CronError as error:
        return _Schedule(spec.job.schedule, (), str(error))
    times: list[float] = []
    minute: int | None = int(now // _MINUTE)
    while minute is not None and len(times) < _MOST_TIMES:
        minute = cron.next_after(minute)
        times += [] if minute is None else [float(minute * _MINUTE)]
    return _Schedule(spec.job.schedule, times, "" if times else "no day matches it")


def _check_exists(records: Records, kind: Kind | None, gvc: str | None, name: str | None) -> None:
    """Raise NotFoundError if a named resource does not exist, or is not applied yet."""
    if gvc is not None:
        check_gvc(records, gvc)
    if name is None:
        return
    where = f" in the gvc {gvc}" if gvc else ""
    desired = (Key.parse(key) for key, _ in records.desired.scan())
    if any(key.kind == kind and key.name == name and gvc in (None, key.gvc) for key in desired):
        raise NotFoundError(f"the {kind} {name!r}{where} is in Git, and not applied yet; see: reconciler describe")
    names = {record.key.name for record in records.applied.items(kind, gvc)}
    raise NotFoundError(f"there is no {kind} {name!r}{where}{did_you_mean(name, names)}")
