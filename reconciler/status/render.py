"""The content of the status file of one resource."""

from __future__ import annotations

import msgspec

from reconciler.engines.domain_status import DomainReport, read_domain_state
from reconciler.model.key import Kind
from reconciler.model.record import Record
from reconciler.records.tables.conditions import Condition
from reconciler.status.conditions import ResourceFacts, conditions
from reconciler.status.yaml_text import quoted, word


class _Resources(msgspec.Struct):
    replicas: int = 0
    replicas_ready: int = msgspec.field(default=0, name="replicasReady")


class _Container(msgspec.Struct):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Version(msgspec.Struct):
    workload: int = 0
    containers: dict[str, _Container] = {}


class _Deployment(msgspec.Struct):
    endpoint: str = ""
    address: str = ""
    expected: int = msgspec.field(default=0, name="expectedDeploymentVersion")
    versions: list[_Version] = []


class _State(msgspec.Struct):
    status: _Deployment | None = None
    volumes: list[msgspec.Raw] | None = None


def resource_file(facts: ResourceFacts, found: tuple[Condition, ...] | None = None) -> bytes:
    """The status of one resource as YAML (schemas/status.json), with equal bytes for equal facts.

    It contains no run, no duration, and no time but the end of certificates: the Git commit has them. It shows nothing
    of a resource's body, and so no secret. ``found`` are its conditions, if the caller has them.
    """
    records = sorted(facts.records, key=_by_location)
    lines = [f"key: {word(str(facts.key))}", f"source: {word(facts.source)}"]
    if facts.path:
        lines.append(f"path: {word(facts.path)}")
    if records:
        newest = max(records, key=_by_time)
        lines.append(f"revision: {quoted(newest.revision)}")
        lines.append(f"version: {max(record.version for record in records)}")
        if newest.alias:
            lines.append(f"alias: {quoted(newest.alias)}")
    lines.append(f"health: {facts.health}")
    lines.append(conditions_block(conditions(facts) if found is None else found))
    places = [_location(record) for record in records if record.location]
    if facts.key.kind is Kind.DOMAIN:
        places += [_served(each, record) for record in records for each in read_domain_state(record.state).locations]
    if places:
        lines += ["locations:", *places]
    return ("\n".join(lines) + "\n").encode()


def conditions_block(found: tuple[Condition, ...]) -> str:
    """The ``conditions`` of a status file; every file has them."""
    if not found:
        return "conditions: []"
    items = (
        f"\n  - type: {word(each.type)}\n    status: {'true' if each.status else 'false'}"
        f"\n    reason: {word(each.reason)}\n    message: {quoted(each.message)}"
        for each in found
    )
    return "conditions:" + "".join(items)


def _location(record: Record) -> str:
    lines = f"  - location: {word(record.location)}\n    engine: {word(record.engine)}\n    health: {record.health}"
    lines += f"\n    version: {record.version}"
    if record.state == b"{}":
        return lines
    try:
        state = msgspec.json.decode(record.state, type=_State)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return lines
    if state.status is not None:
        lines += _deployment(state.status)
    if state.volumes is not None:
        lines += f"\n    volumes: {len(state.volumes)}"
    return lines


def _served(report: DomainReport, record: Record) -> str:
    """Where a domain answers at a location, with the end of its certificates."""
    lines = [f"  - location: {word(report.location)}", f"    health: {record.health}"]
    if report.endpoints:
        lines.append("    endpoints:")
    for each in report.endpoints:
        lines.append(f"      - url: {quoted(each.url)}")
        if each.certificate_expires:
            lines.append(f"        certificateExpires: {quoted(each.certificate_expires)}")
    return "\n".join(lines)


def _deployment(status: _Deployment) -> str:
    """Replicas of the expected version. Containers of one replica start together, so the smallest count applies."""
    counts = [
        container.resources
        for version in status.versions
        if version.workload == status.expected
        for container in version.containers.values()
    ]
    text = ""
    if counts:
        expected = max(each.replicas for each in counts)
        text = f"\n    replicas: {{ready: {min(each.replicas_ready for each in counts)}, expected: {expected}}}"
    named = (("endpoint", status.endpoint), ("address", status.address))
    return text + "".join(f"\n    {name}: {quoted(value)}" for name, value in named if value)


def _by_location(record: Record) -> str:
    return record.location


def _by_time(record: Record) -> float:
    return record.applied_at
