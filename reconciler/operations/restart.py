"""Finds the locations at which a workload can be restarted."""

from __future__ import annotations

from reconciler.errors import RefusedError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import options_at, read_specification
from reconciler.model.record import Record
from reconciler.queries.existence import check_present
from reconciler.records.store import Records
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings

ENGINE = "host"
"""The engine whose replicas can be restarted."""


def restartable_at(settings: Settings, records: Records, key: Key) -> list[str]:
    """The locations at which ``key`` has replicas to restart. Raises RefusedError where there are none."""
    if key.kind is not Kind.WORKLOAD:
        raise RefusedError(f"{key} is no workload; only workloads have replicas to restart")
    found = records.applied.get(key)
    if not found:
        check_present(records, key)
        raise RefusedError(f"{key} is not applied yet; there is nothing to restart")
    _check_suspended(records, key, found[0].source)
    spec = read_specification(found[0].body)
    if spec.type == "cron":
        raise RefusedError(f"{key} runs on a schedule: there are executions of it, and no replicas to restart")
    here = [record for record in found if _runs_here(settings, record)]
    if not here:
        raise RefusedError(f"{key} runs nowhere with the engine {ENGINE}; {_where(found)}")
    places = [record.location for record in here if not options_at(spec, record.location).suspend]
    if not places:
        raise RefusedError(f"{key} is stopped by `suspend` in its options; there is nothing to restart")
    return places


def _check_suspended(records: Records, key: Key, source: str) -> None:
    for target, name in ((str(key), str(key)), (source_target(source), source)):
        if records.suspensions.get(target) is not None:
            raise RefusedError(f"{name} is suspended, and nothing is done about it until: reconciler resume {name}")


def _runs_here(settings: Settings, record: Record) -> bool:
    bound = settings.locations.get(record.location)
    return record.engine == ENGINE and bound is not None and bound.engine == ENGINE


def _where(found: tuple[Record, ...]) -> str:
    """``it is at here (recorded), there (recorded)``."""
    places = [f"{record.location} ({record.engine})" for record in found if record.location]
    return f"it is at {', '.join(places)}" if places else "this host binds none of its locations"
