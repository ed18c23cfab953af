"""Resources as a table, as sections of text, and as JSON and YAML; secret data shows as ``***``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import indent
from typing import Any

import msgspec

from reconciler.documents.writer import render_document
from reconciler.engines.domain_status import DomainReport, read_domain_state
from reconciler.engines.engine_state import record_conditions
from reconciler.engines.volumes import newest_snapshot, read_volumes, size_in_words
from reconciler.manifests.defaults import drop_defaults
from reconciler.model.key import Kind
from reconciler.model.record import Record
from reconciler.model.revision import shorten_revision
from reconciler.printable import truncate_text
from reconciler.reasons import ConditionType, Reason
from reconciler.records.tables.commands import StoredCommand
from reconciler.records.tables.conditions import Condition
from reconciler.records.tables.events import Event
from reconciler.render.commands import command_document, command_line
from reconciler.render.history import event_document, event_line
from reconciler.render.layout import align_columns, paint_text, strip_control, table_text
from reconciler.render.replicas import count_ready
from reconciler.render.style import TextStyle
from reconciler.status.conditions import ResourceFacts, compute_conditions
from reconciler.status.rollup import find_worst_health
from reconciler.times import format_iso_time, format_short_duration

MASK = "***"

_HEADING = ("KEY", "HEALTH", "READY", "VERSION", "AGE", "MESSAGE")
_WIDE_HEADING = (*_HEADING[:-1], "SOURCE", "REVISION", "LOCATIONS", _HEADING[-1])
_SHOWN_MESSAGE = 200
"""The most characters of a message in a table that is not wide."""
_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z]|spec\.)")

_HEALTH_COLOURS = {
    "Healthy": "green",
    "Recorded": "grey",
    "Loading": "yellow",
    "Deleting": "yellow",
    "Unhealthy": "red",
    "Unknown": "grey",
}
_SHOWN_APART = (ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.NOT_ENFORCED)
"""Conditions that repeat why a resource is not ready, or have a section of their own."""
_CRASH = "ended with "
"""What the message of a container that ended has."""
_EXECUTION_COLOURS = {"Active": "yellow", "Success": "green", "Failure": "red", "Invalid": "red", "Removed": "grey"}


def resource_table(resources: Iterable[tuple[ResourceFacts, float]], now: float, style: TextStyle) -> str:
    """A line for each resource with the time when it was first applied, below a heading; ``""`` if there are none."""
    rows = (_make_row(facts, max(0.0, now - created), style) for facts, created in resources)
    return table_text(_WIDE_HEADING if style.wide else _HEADING, rows, style, _HEALTH_COLOURS)


def _make_row(facts: ResourceFacts, age: float, style: TextStyle) -> tuple[str, ...]:
    conditions = compute_conditions(facts)
    ready = next((condition for condition in conditions if condition.type == ConditionType.READY), None)
    member_problem = _find_member_problem(facts)
    message = strip_control("; ".join((*_list_messages(ready, conditions), *member_problem)))
    seen = count_ready(facts) or ("-" if ready is None else "yes" if ready.status and not member_problem else "no")
    row = (str(facts.key), str(facts.health), seen, str(_get_applied_version(facts)), format_short_duration(age))
    if not style.wide:
        cut = message if len(message) <= _SHOWN_MESSAGE else f"{message[: _SHOWN_MESSAGE - 1]}…"
        return (*row, cut)
    places = " ".join(record.location for record in facts.records if record.location)
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    commit = "-" if newest is None else newest.revision.rpartition(":")[2][:12] or "-"
    return (*row, facts.source or "-", commit, places or "-", message)


def _find_member_problem(facts: ResourceFacts) -> tuple[str, ...]:
    """Why a GVC is not ready although it is applied, in a sentence: one of its resources is not well."""
    worst = find_worst_health(facts.members)
    if facts.key.kind is not Kind.GVC or not facts.members or worst.is_good:
        return ()
    return (f"a resource in it is {worst}: reconciler get --gvc {facts.key.name}",)


def _list_messages(ready: Condition | None, conditions: Sequence[Condition]) -> Iterator[str]:
    """Why the resource is not ready, and what operators did to it."""
    plain = (Reason.APPLIED, Reason.RECORDED)
    if ready is not None and not (ready.status and ready.reason in plain):
        yield f"{ready.reason}: {ready.message}" if ready.message else ready.reason
    for condition in conditions:
        is_ours = condition.type in (ConditionType.SUSPENDED, ConditionType.HOLDING_REQUESTS)
        if is_ours and (ready is None or ready.reason != condition.reason):
            yield f"{condition.reason}: {condition.message}"


def resource_sections(
    facts: ResourceFacts,
    commands: Iterable[StoredCommand],
    events: Iterable[Event],
    style: TextStyle,
    schedule: tuple[Sequence[float], str] = ((), ""),
    last_line: str = "",
) -> Iterator[tuple[str, str]]:
    """Titles with their lines; a section without lines is ``""``.

    ``schedule`` has the next times of a cron workload, in seconds since the epoch, and why there are none.
    ``last_line`` is what a workload wrote before it ended with an error, "" for whoever may not read logs.
    """
    colour = style.colour
    colours = _HEALTH_COLOURS if colour else None
    title, rows = paint_text(str(facts.key), "bold", colour), list(_list_summary_rows(facts))
    ailments = list(_list_ailment_rows(facts, last_line))
    yield "", title if ailments else f"{title}\n{align_columns(rows, '  ', colours)}"
    yield "Not well", _indent_rows(ailments)
    yield "Summary", align_columns(rows, "  ", colours) if ailments else ""
    lacking = list(_list_unenforced_rows(facts))
    messages: dict[str, str] = {ConditionType.NOT_ENFORCED: "some of it has no effect, see below"} if lacking else {}
    shown = [
        (condition.type, str(condition.status), condition.reason, messages.get(condition.type, condition.message))
        for condition in compute_conditions(facts)
    ]
    yield "Conditions", _indent_rows(shown, {"True": "green", "False": "red"} if colour else None)
    yield "Locations", _indent_rows(list(_list_place_rows(facts)), colours)
    yield "Endpoints", _indent_rows(list(_domain_endpoints(facts)))
    replicas = [row for record in facts.records for row in _list_replica_rows(record)]
    yield "Replicas", _indent_rows(replicas, {"ready": "green", "not ready": "yellow"} if colour else None)
    yield "Volumes", _indent_rows([row for record in facts.records for row in _list_volume_rows(record)])
    executions = [row for record in facts.records for row in _list_execution_rows(record)]
    yield "Executions", _indent_rows(executions, _EXECUTION_COLOURS if colour else None)
    times, obstacle = schedule
    shown_times = [*map(format_iso_time, times), *([f"none: {obstacle}"] if obstacle else [])]
    yield "Next executions", "\n".join(f"  {line}" for line in shown_times)
    yield "No effect", _indent_rows(lacking)
    yield "Failures", _indent_rows(list(_list_failure_rows(facts)))
    yield "Fields", _format_fields(facts, style)
    yield (
        "Commands",
        _indent_rows([(format_iso_time(command.created), command.by, command_line(command)) for command in commands]),
    )
    yield "Events", "\n".join("  " + event_line(event, colour) for event in events)


def _indent_rows(rows: Sequence[Sequence[str]], colours: dict[str, str] | None = None) -> str:
    return align_columns(rows, "  ", colours) if rows else ""


def details_document(
    facts: ResourceFacts,
    commands: Iterable[StoredCommand],
    events: Iterable[Event],
    next_runs: Sequence[float] = (),
    no_runs: str = "",
) -> dict[str, Any]:
    """A resource as ``resource_document`` has it, with ``commands``, newest first, and ``events``, oldest first.

    ``next_runs`` are the next times of a cron workload, in seconds since the epoch; ``no_runs`` says why it has none.
    """
    document = resource_document(facts)
    schedule = {"nextExecutions": list(map(format_iso_time, next_runs)), "noExecutions": no_runs or None}
    return {
        **document,
        **(schedule if next_runs or no_runs else {}),
        "commands": list(map(command_document, commands)),
        "events": list(map(event_document, events)),
    }


def resource_document(facts: ResourceFacts, created: float | None = None) -> dict[str, Any]:
    """One resource as JSON: the fields of its manifest, then its recorded status; times are UTC.

    ``created`` is when it was first applied, in seconds since the epoch; without it, the field is left out.
    """
    fields: dict[str, Any] = {"kind": str(facts.key.kind), "name": facts.key.name, "gvc": facts.key.gvc}
    if not facts.key.gvc:
        del fields["gvc"]
    fields |= _get_masked_body(facts)
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    if newest is not None:
        fields |= {"source": newest.source, "revision": newest.revision, "version": _get_applied_version(facts)}
        if newest.alias:
            fields["alias"] = newest.alias
        fields["applied"] = format_iso_time(newest.applied_at)
    if created is not None:
        fields["created"] = format_iso_time(created)
    fields["health"] = str(facts.health)
    fields["conditions"] = [msgspec.structs.asdict(condition) for condition in compute_conditions(facts)]
    fields["deployments"] = [_build_deployment(record) for record in facts.records if record.location]
    if facts.key.kind is Kind.DOMAIN:
        fields["locations"] = [
            msgspec.to_builtins(msgspec.structs.replace(report, conditions=()))
            for report in _list_domain_reports(facts)
        ]
    return fields


def _get_masked_body(facts: ResourceFacts) -> dict[str, Any]:
    """The fields of the manifest as last applied, empty if nothing is; ``***`` for secret values."""
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    if newest is None:
        return {}
    fields: dict[str, Any] = msgspec.json.decode(newest.body)
    if facts.key.kind is Kind.SECRET and "data" in fields:
        fields["data"] = _mask_value(fields["data"])
    return fields


def _get_applied_version(facts: ResourceFacts) -> int:
    """The version last applied, 0 if none is."""
    return max((record.version for record in facts.records), default=0)


def _format_endpoint(record: Record) -> str:
    """The endpoint of ``record``, and where it is served if that differs; "" if there is none."""
    status = msgspec.json.decode(record.state).get("status")
    shown = [status.get("endpoint"), status.get("address")] if isinstance(status, dict) else []
    return ", served at ".join(str(text) for text in shown if text)


def _list_domain_reports(facts: ResourceFacts) -> tuple[DomainReport, ...]:
    """What the locations that serve a domain report about it; none about other kinds."""
    states = (record.state for record in facts.records if facts.key.kind is Kind.DOMAIN)
    return tuple(report for state in states for report in read_domain_state(state).locations)


def _domain_endpoints(facts: ResourceFacts) -> Iterator[tuple[str, ...]]:
    """A row for each endpoint of a domain: its address, the location, and the end of its certificate."""
    for report in _list_domain_reports(facts):
        for endpoint in report.endpoints:
            end = (
                f"the certificate expires at {endpoint.certificate_expires}"
                if endpoint.certificate_expires
                else "without TLS"
            )
            yield endpoint.url, report.location, end


def _list_replica_rows(record: Record) -> Iterator[tuple[str, ...]]:
    """A row for each replica, as last observed: name, place, version, state, restarts, ports, message."""
    status = msgspec.json.decode(record.state).get("status")
    for value in status.get("replicas", ()) if isinstance(status, dict) else ():
        ports = " ".join(f"127.0.0.1:{assigned}->{declared}" for declared, assigned in value["ports"].items())
        restarts = value.get("restarts", 0)
        yield (
            value["name"],
            record.location,
            f"version {value['version']}",
            "ready" if value["ready"] else "not ready",
            f"{restarts} restart{'' if restarts == 1 else 's'}",
            ports,
            " ".join(value["message"].split()),
        )


def _list_volume_rows(record: Record) -> Iterator[tuple[str, ...]]:
    """A row for each volume of a volume set: its index, place, lifecycle, size, use, and the age of its newest copy."""
    state = read_volumes(record.state) if record.key.kind is Kind.VOLUMESET else None
    for volume in state.volumes if state is not None else ():
        newest = newest_snapshot(volume)
        yield (
            str(volume.index),
            record.location,
            str(volume.lifecycle),
            f"{volume.current_size:g} GB",
            f"{size_in_words(volume.current_bytes_used)} used",
            f"newest snapshot of {newest}" if newest else "no snapshot",
            f"last proven {volume.last_proven}" if volume.last_proven else "",
        )


def _list_execution_rows(record: Record) -> Iterator[tuple[str, ...]]:
    """A row for each execution of a cron workload: name, place, version, status, begin, end, message."""
    status = msgspec.json.decode(record.state).get("status")
    for value in status.get("jobExecutions", ()) if isinstance(status, dict) else ():
        messages = (condition["message"] or condition["reason"] for condition in value["conditions"])
        yield (
            value["name"],
            record.location,
            f"version {value['workloadVersion']}",
            value["status"],
            value["startTime"],
            value["completionTime"] or "-",
            " ".join("; ".join(messages).split()),
        )


def _build_deployment(record: Record) -> dict[str, Any]:
    state: dict[str, Any] = msgspec.json.decode(record.state)
    seen = {"location": record.location, "engine": record.engine, "health": str(record.health)}
    return {**seen, "version": record.version, **state}


def _mask_value(value: Any) -> Any:
    """``value`` with its names and without its data."""
    if isinstance(value, dict):
        return {name: _mask_value(member) for name, member in value.items()}
    return MASK


def _list_summary_rows(facts: ResourceFacts) -> Iterator[tuple[str, str]]:
    yield "Health", str(facts.health)
    orphaned = facts.wait is not None and facts.wait.reason is Reason.ORPHANED
    where = "no longer in the settings" if orphaned else facts.path or "no longer in Git"
    yield "Source", f"{facts.source} ({where})"
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    if newest is None:
        yield "Version", "not applied yet"
        return
    yield "Version", str(_get_applied_version(facts))
    yield "Revision", shorten_revision(newest.revision)
    yield "Applied", format_iso_time(newest.applied_at)
    if newest.alias:
        yield "Alias", newest.alias


def _list_ailment_rows(facts: ResourceFacts, last_line: str) -> Iterator[tuple[str, str]]:
    """What is not as it should be, a reason with its message each; first why the resource is not ready."""
    listed = ""
    for condition in compute_conditions(facts):
        is_bad = condition.status is ConditionType(condition.type).abnormal
        is_listed = condition.type in _SHOWN_APART or (condition.message and condition.message in listed)
        if is_bad and not is_listed:
            yield condition.reason, condition.message
            listed += condition.message
    statuses = (msgspec.json.decode(record.state).get("status") for record in facts.records)
    replicas = (replica for status in statuses if isinstance(status, dict) for replica in status.get("replicas", ()))
    for replica in replicas:
        message = " ".join(replica["message"].split())
        if not replica["ready"] and message and message not in listed:
            yield replica["name"], message
            listed += message
    if _CRASH in listed and facts.key.kind is Kind.WORKLOAD:
        # Lines of logs may have secrets: conditions have none, since more people read them than may read logs.
        if last_line:
            yield "Last line", truncate_text(strip_control(last_line))
        yield "Log", f"its last lines: reconciler logs {facts.key}"


def _list_place_rows(facts: ResourceFacts) -> Iterator[tuple[str, ...]]:
    placed = [record for record in facts.records if record.location]
    for record in placed:
        left = "no longer bound here, so not observed" if record.location in facts.unbound else _format_endpoint(record)
        yield record.location, str(record.health), f"version {record.version}", left
    for location in sorted(set(facts.unbound) - {record.location for record in placed}):
        yield location, "-", "not bound here", ""


def _list_unenforced_rows(facts: ResourceFacts) -> Iterator[tuple[str, str]]:
    """The fields that are not enforced: one sentence a row, in full, with its locations."""
    places: dict[str, list[str]] = {}
    for record in facts.records:
        lacking = (
            record_condition
            for record_condition in record_conditions(record)
            if record_condition.type is ConditionType.NOT_ENFORCED
        )
        for sentence, location in (
            (text, condition.location) for condition in lacking for text in _SENTENCES.split(condition.message)
        ):
            if sentence:
                places.setdefault(sentence, []).append(location or record.location)
    yield from ((", ".join(at), sentence) for sentence, at in places.items())


def _list_failure_rows(facts: ResourceFacts) -> Iterator[tuple[str, ...]]:
    for failure in facts.failures:
        again = f"tried {failure.attempts} times"
        if failure.retry:
            again += f", again at {format_iso_time(failure.next_attempt)}"
        yield failure.location or "-", failure.reason, failure.message, again


def _format_fields(facts: ResourceFacts, style: TextStyle) -> str:
    """The fields of the manifest as YAML; without defaults, unless the text is wide."""
    body = _get_masked_body(facts)
    shown = body if style.wide else drop_defaults(facts.key.kind, body)
    names = ("kind", "name", "gvc")
    if not body.keys() - {*names}:
        return ""
    fields = {name: value for name, value in shown.items() if name not in names}
    text = indent(render_document(fields), "  ", lambda line: line != "\n").removesuffix("\n") if fields else ""
    aside = "" if shown == body else "  # all else has its default; -o wide or yaml shows it"
    return "\n".join(filter(None, (text, aside)))
