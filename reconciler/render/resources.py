"""Resources as a table, as sections of text, and as JSON and YAML; secret data shows as ``***``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import indent
from typing import Any

import msgspec

from reconciler.documents.writer import written
from reconciler.engines.domain_status import DomainReport, read_domain_state
from reconciler.engines.engine_state import record_conditions
from reconciler.engines.volumes import newest_snapshot, read_volumes, size_in_words
from reconciler.model.key import Kind
from reconciler.model.record import Record
from reconciler.reasons import ConditionType, Reason
from reconciler.records.tables.commands import StoredCommand
from reconciler.records.tables.conditions import Condition
from reconciler.records.tables.events import Event
from reconciler.render.commands import command_line
from reconciler.render.history import event_line
from reconciler.render.layout import as_json, columns, paint
from reconciler.render.sources import source_document
from reconciler.status.conditions import ResourceFacts, conditions
from reconciler.status.source_status import SourceStatus
from reconciler.times import iso

MASK = "***"

_HEADING = ("KEY", "HEALTH", "READY", "VERSION", "LOCATIONS")
_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z]|spec\.)")

_HEALTH_COLOURS = {
    "Healthy": "green",
    "Recorded": "grey",
    "Loading": "yellow",
    "Deleting": "yellow",
    "Unhealthy": "red",
    "Unknown": "grey",
}
_EXECUTION_COLOURS = {"Active": "yellow", "Success": "green", "Failure": "red", "Invalid": "red", "Removed": "grey"}


def resource_table(found: Iterable[ResourceFacts], colour: bool) -> str:
    """A line for each resource below a heading; ``""`` if there are none."""
    rows = [_HEADING]
    for facts in found:
        places = " ".join(record.location for record in facts.records if record.location)
        ready = _ready_words(conditions(facts))
        rows.append((str(facts.key), str(facts.health), ready, str(_version(facts)), places or "-"))
    return columns(rows, colours=_HEALTH_COLOURS if colour else None) if len(rows) > 1 else ""


# The documents of 100,000 resources would take a gigabyte at once.
def resources_json(found: Iterable[ResourceFacts], sources: Iterable[SourceStatus]) -> Iterator[str]:
    """Resources below ``items`` and sources below ``sources``, as parts of one JSON document, one for each resource."""
    yield '{"items": ['
    for number, facts in enumerate(found):
        yield ("," if number else "") + "\n" + as_json(_item(facts)).decode()
    yield f'\n], "sources": {as_json(list(map(source_document, sources))).decode()}}}\n'


def resources_yaml(found: Iterable[ResourceFacts], sources: Iterable[SourceStatus]) -> Iterator[str]:
    """The same as ``resources_json``, as parts of one YAML document."""
    empty = True
    for facts in found:
        yield ("items:\n" if empty else "") + written([_item(facts)])
        empty = False
    if empty:
        yield "items: []\n"
    yield written({"sources": list(map(source_document, sources))})


def resource_sections(
    facts: ResourceFacts, commands: Iterable[StoredCommand], events: Iterable[Event], colour: bool
) -> Iterator[tuple[str, str]]:
    """Titles with their lines; a section without lines is ``""``."""
    colours = _HEALTH_COLOURS if colour else None
    yield "", paint(str(facts.key), "bold", colour) + "\n" + columns(list(_summary(facts)), "  ", colours)
    lacking = list(_lacking(facts))
    messages: dict[str, str] = {ConditionType.NOT_ENFORCED: "some of it has no effect, see below"} if lacking else {}
    rows = [
        (each.type, str(each.status), each.reason, messages.get(each.type, each.message)) for each in conditions(facts)
    ]
    yield "Conditions", _indented(rows, {"True": "green", "False": "red"} if colour else None)
    yield "Locations", _indented(list(_places(facts)), colours)
    yield "Endpoints", _indented(list(_domain_endpoints(facts)))
    replicas = [row for record in facts.records for row in _replicas(record)]
    yield "Replicas", _indented(replicas, {"ready": "green", "not ready": "yellow"} if colour else None)
    yield "Volumes", _indented([row for record in facts.records for row in _volumes(record)])
    executions = [row for record in facts.records for row in _executions(record)]
    yield "Executions", _indented(executions, _EXECUTION_COLOURS if colour else None)
    yield "No effect", _indented(lacking)
    yield "Failures", _indented(list(_failures(facts)))
    fields = {name: value for name, value in _body(facts).items() if name not in ("kind", "name", "gvc")}
    yield "Fields", _yaml(fields) if fields else ""
    yield "Commands", _indented([(iso(each.created), each.by, command_line(each)) for each in commands])
    yield "Events", "\n".join("  " + event_line(event, colour) for event in events)


def _indented(rows: Sequence[Sequence[str]], colours: dict[str, str] | None = None) -> str:
    return columns(rows, "  ", colours) if rows else ""


def _item(facts: ResourceFacts) -> dict[str, Any]:
    """One resource as JSON: the fields of its manifest, then its recorded status."""
    found: dict[str, Any] = {"kind": str(facts.key.kind), "name": facts.key.name, "gvc": facts.key.gvc}
    if not facts.key.gvc:
        del found["gvc"]
    found |= _body(facts)
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    if newest is not None:
        found |= {"source": newest.source, "revision": newest.revision, "version": _version(facts)}
        if newest.alias:
            found["alias"] = newest.alias
    found["health"] = str(facts.health)
    found["conditions"] = [msgspec.structs.asdict(condition) for condition in conditions(facts)]
    found["deployments"] = [_deployment(record) for record in facts.records if record.location]
    if facts.key.kind is Kind.DOMAIN:
        found["locations"] = [
            msgspec.to_builtins(msgspec.structs.replace(each, conditions=())) for each in _reports(facts)
        ]
    return found


def _body(facts: ResourceFacts) -> dict[str, Any]:
    """The fields of the manifest as last applied, empty if nothing is; ``***`` for secret values."""
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    if newest is None:
        return {}
    fields: dict[str, Any] = msgspec.json.decode(newest.body)
    if facts.key.kind is Kind.SECRET and "data" in fields:
        fields["data"] = _mask(fields["data"])
    return fields


def _version(facts: ResourceFacts) -> int:
    """The version last applied, 0 if none is."""
    return max((record.version for record in facts.records), default=0)


def _ready_words(found: Sequence[Condition]) -> str:
    """``yes``, or the reason why not; and whether an operator suspended it."""
    ready = next((each for each in found if each.type == ConditionType.READY), None)
    if ready is None:
        return "-"
    words = "yes" if ready.status else ready.reason
    words += ", orphaned" if ready.status and ready.reason == Reason.ORPHANED else ""
    suspended = any(each.type == ConditionType.SUSPENDED for each in found)
    also_suspended = words != Reason.SUSPENDED and suspended
    return f"{words}, suspended" if also_suspended else words


def _endpoint(record: Record) -> str:
    """The endpoint of ``record``, and where it is served if that differs; "" if there is none."""
    status = msgspec.json.decode(record.state).get("status")
    shown = [status.get("endpoint"), status.get("address")] if isinstance(status, dict) else []
    return ", served at ".join(str(each) for each in shown if each)


def _reports(facts: ResourceFacts) -> tuple[DomainReport, ...]:
    """What the locations that serve a domain report about it; none about other kinds."""
    states = (each.state for each in facts.records if facts.key.kind is Kind.DOMAIN)
    return tuple(report for state in states for report in read_domain_state(state).locations)


def _domain_endpoints(facts: ResourceFacts) -> Iterator[tuple[str, ...]]:
    """A row for each endpoint of a domain: its address, the location, and the end of its certificate."""
    for report in _reports(facts):
        for each in report.endpoints:
            end = (
                f"the certificate expires at {each.certificate_expires}" if each.certificate_expires else "without TLS"
            )
            yield each.url, report.location, end


def _replicas(record: Record) -> Iterator[tuple[str, ...]]:
    """A row for each replica, as last observed: name, place, version, state, restarts, ports, message."""
    status = msgspec.json.decode(record.state).get("status")
    for each in status.get("replicas", ()) if isinstance(status, dict) else ():
        ports = " ".join(f"127.0.0.1:{assigned}->{declared}" for declared, assigned in each["ports"].items())
        restarts = each.get("restarts", 0)
        yield (
            each["name"],
            record.location,
            f"version {each['version']}",
            "ready" if each["ready"] else "not ready",
            f"{restarts} restart{'' if restarts == 1 else 's'}",
            ports,
            " ".join(each["message"].split()),
        )


def _volumes(record: Record) -> Iterator[tuple[str, ...]]:
    """A row for each volume of a volume set: its index, place, lifecycle, size, use, and the age of its newest copy."""
    state = read_volumes(record.state) if record.key.kind is Kind.VOLUMESET else None
    for each in state.volumes if state is not None else ():
        newest = newest_snapshot(each)
        yield (
            str(each.index),
            record.location,
            str(each.lifecycle),
            f"{each.current_size:g} GB",
            f"{size_in_words(each.current_bytes_used)} used",
            f"newest snapshot of {newest}" if newest else "no snapshot",
            f"last proven {each.last_proven}" if each.last_proven else "",
        )


def _executions(record: Record) -> Iterator[tuple[str, ...]]:
    """A row for each execution of a cron workload: name, place, version, status, begin, end, message."""
    status = msgspec.json.decode(record.state).get("status")
    for each in status.get("jobExecutions", ()) if isinstance(status, dict) else ():
        messages = (condition["message"] or condition["reason"] for condition in each["conditions"])
        yield (
            each["name"],
            record.location,
            f"version {each['workloadVersion']}",
            each["status"],
            each["startTime"],
            each["completionTime"] or "-",
            " ".join("; ".join(messages).split()),
        )


def _deployment(record: Record) -> dict[str, Any]:
    state: dict[str, Any] = msgspec.json.decode(record.state)
    seen = {"location": record.location, "engine": record.engine, "health": str(record.health)}
    return {**seen, "version": record.version, **state}


def _mask(value: Any) -> Any:
    """``value`` with its names and without its data."""
    if isinstance(value, dict):
        return {name: _mask(member) for name, member in value.items()}
    return MASK


def _summary(facts: ResourceFacts) -> Iterator[tuple[str, str]]:
    yield "Health", str(facts.health)
    orphaned = facts.wait is not None and facts.wait.reason is Reason.ORPHANED
    where = "no longer in the settings" if orphaned else facts.path or "no longer in Git"
    yield "Source", f"{facts.source} ({where})"
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    if newest is None:
        yield "Version", "not applied yet"
        return
    yield "Version", str(_version(facts))
    yield "Revision", newest.revision
    yield "Applied", iso(newest.applied_at)
    if newest.alias:
        yield "Alias", newest.alias


def _places(facts: ResourceFacts) -> Iterator[tuple[str, ...]]:
    placed = [record for record in facts.records if record.location]
    for record in placed:
        left = "no longer bound here, so not observed" if record.location in facts.unbound else _endpoint(record)
        yield record.location, str(record.health), f"version {record.version}", left
    for location in sorted(set(facts.unbound) - {record.location for record in placed}):
        yield location, "-", "not bound here", ""


def _lacking(facts: ResourceFacts) -> Iterator[tuple[str, str]]:
    """The fields that are not enforced: one sentence a row, in full, with its locations."""
    places: dict[str, list[str]] = {}
    for record in facts.records:
        lacking = (each for each in record_conditions(record) if each.type is ConditionType.NOT_ENFORCED)
        for sentence, place in ((text, each.location) for each in lacking for text in _SENTENCES.split(each.message)):
            if sentence:
                places.setdefault(sentence, []).append(place or record.location)
    yield from ((", ".join(at), sentence) for sentence, at in places.items())


def _failures(facts: ResourceFacts) -> Iterator[tuple[str, ...]]:
    for failure in facts.failures:
        again = f"tried {failure.attempts} times"
        if failure.retry:
            again += f", again at {iso(failure.next_attempt)}"
        yield failure.location or "-", failure.reason, failure.message, again


def _yaml(fields: object) -> str:
    return indent(written(fields), "  ", lambda line: line != "\n").removesuffix("\n")
