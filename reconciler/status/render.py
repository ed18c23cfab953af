"""The content of the status file of one resource."""

from __future__ import annotations

import msgspec

from reconciler.engines.domain_status import DomainReport, read_domain_state
from reconciler.model.key import Kind
from reconciler.model.record import Record
from reconciler.records.tables.conditions import Condition
from reconciler.status.conditions import ResourceFacts, compute_conditions
from reconciler.status.yaml_text import format_word, quote_text


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


class DeploymentSummary(msgspec.Struct, frozen=True):
    """Of a workload at a location: ``ready`` of ``replicas``, None where none are told, and where it answers."""

    replicas: int | None = None
    ready: int = 0
    endpoint: str = ""
    address: str = ""


class _State(msgspec.Struct):
    status: _Deployment | None = None
    volumes: list[msgspec.Raw] | None = None


def resource_file(facts: ResourceFacts, current: tuple[Condition, ...] | None = None) -> bytes:
    """The status of one resource as YAML (schemas/status.json), with equal bytes for equal facts.

    It contains no run, no duration, and no time but the end of certificates: the Git commit has them. It shows nothing
    of a resource's body, and so no secret. ``current`` are its conditions, if the caller has them.
    """
    records = sorted(facts.records, key=_by_location)
    lines = [f"key: {format_word(str(facts.key))}", f"source: {format_word(facts.source)}"]
    if facts.path:
        lines.append(f"path: {format_word(facts.path)}")
    if records:
        newest = max(records, key=_by_time)
        lines.append(f"revision: {quote_text(newest.revision)}")
        lines.append(f"version: {max(record.version for record in records)}")
        if newest.alias:
            lines.append(f"alias: {quote_text(newest.alias)}")
    lines.append(f"health: {facts.health}")
    lines.append(conditions_block(compute_conditions(facts) if current is None else current))
    places = [_render_location(record) for record in records if record.location]
    if facts.key.kind is Kind.DOMAIN:
        places += [
            _describe_domain_endpoint(location, record)
            for record in records
            for location in read_domain_state(record.state).locations
        ]
    if places:
        lines += ["locations:", *places]
    return ("\n".join(lines) + "\n").encode()


def conditions_block(entries: tuple[Condition, ...]) -> str:
    """The ``conditions`` of a status file; every file has them."""
    if not entries:
        return "conditions: []"
    items = (
        f"\n  - type: {format_word(condition.type)}\n    status: {'true' if condition.status else 'false'}"
        f"\n    reason: {format_word(condition.reason)}\n    message: {quote_text(condition.message)}"
        for condition in entries
    )
    return "conditions:" + "".join(items)


def _render_location(record: Record) -> str:
    location, engine = format_word(record.location), format_word(record.engine)
    lines = f"  - location: {location}\n    engine: {engine}\n    health: {record.health}"
    lines += f"\n    version: {record.version}"
    if record.state == b"{}":
        return lines
    state = _read_state(record)
    if state.status is not None:
        lines += _describe_replica_counts(_summarize_status(state.status))
    if state.volumes is not None:
        lines += f"\n    volumes: {len(state.volumes)}"
    return lines


def summarize_deployment(record: Record) -> DeploymentSummary:
    """How many replicas a workload has at a location, and where it answers."""
    status = _read_state(record).status
    return DeploymentSummary() if status is None else _summarize_status(status)


def _read_state(record: Record) -> _State:
    """The state of a record; an empty one if it has another shape."""
    try:
        return msgspec.json.decode(record.state, type=_State)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return _State()


def _describe_domain_endpoint(report: DomainReport, record: Record) -> str:
    """Where a domain answers at a location, with the end of its certificates."""
    lines = [f"  - location: {format_word(report.location)}", f"    health: {record.health}"]
    if report.endpoints:
        lines.append("    endpoints:")
    for endpoint in report.endpoints:
        lines.append(f"      - url: {quote_text(endpoint.url)}")
        if endpoint.certificate_expires:
            lines.append(f"        certificateExpires: {quote_text(endpoint.certificate_expires)}")
    return "\n".join(lines)


def _summarize_status(status: _Deployment) -> DeploymentSummary:
    """Replicas of the expected version. Containers of one replica start together, so the smallest count applies."""
    counts = [
        container.resources
        for version in status.versions
        if version.workload == status.expected
        for container in version.containers.values()
    ]
    replicas = max((count.replicas for count in counts), default=None)
    ready = min((count.replicas_ready for count in counts), default=0)
    return DeploymentSummary(replicas, ready, status.endpoint, status.address)


def _describe_replica_counts(summary: DeploymentSummary) -> str:
    text = ""
    if summary.replicas is not None:
        text = f"\n    replicas: {{ready: {summary.ready}, expected: {summary.replicas}}}"
    named = (("endpoint", summary.endpoint), ("address", summary.address))
    return text + "".join(f"\n    {name}: {quote_text(value)}" for name, value in named if value)


def _by_location(record: Record) -> str:
    return record.location


def _by_time(record: Record) -> float:
    return record.applied_at
