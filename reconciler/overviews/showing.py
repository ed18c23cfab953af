"""Shows overviews as text and as JSON values. Each function imports what it shows with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconciler.engines.reading import ReplicaRow
    from reconciler.overviews.reading import SnapshotOverview, StatusOverview
    from reconciler.queries.resources import ResourceDetails
    from reconciler.queries.top import ReplicaReader
    from reconciler.records.tables.events import Event
    from reconciler.records.tables.runs import Run
    from reconciler.status.source_status import SourceDetails
    from reconciler.status.summary import StatusSummary


def show_status(status: StatusOverview, colour: bool) -> str:
    """A line for each resource."""
    from reconciler.render.resources import resource_table

    return resource_table(status.resources, colour)


def write_status_json(status: StatusOverview) -> Iterator[str]:
    """The resources and all sources as JSON."""
    from reconciler.render.resources import resources_json

    return resources_json(status.resources, status.sources())


def write_status_yaml(status: StatusOverview) -> Iterator[str]:
    """The resources and all sources as YAML."""
    from reconciler.render.resources import resources_yaml

    return resources_yaml(status.resources, status.sources())


def list_troubles(status: StatusOverview) -> Iterator[str]:
    """A line for each source that is not as its newest commit wants."""
    from reconciler.render.layout import strip_control
    from reconciler.render.sources import source_lines

    for source in status.sources():
        yield from map(strip_control, source_lines(source))


def show_summary(summary: StatusSummary, colour: bool) -> str:
    """A block for each source, and what is not ready."""
    from reconciler.render.summary import summary_text

    return summary_text(summary, colour)


def write_summary_json(summary: StatusSummary) -> Iterator[str]:
    """The summary as JSON."""
    from reconciler.render.layout import as_json
    from reconciler.render.summary import summary_document

    yield f"{as_json(summary_document(summary)).decode()}\n"


def write_summary_yaml(summary: StatusSummary) -> Iterator[str]:
    """The summary as YAML."""
    from reconciler.documents.writer import render_document
    from reconciler.render.summary import summary_document

    yield render_document(summary_document(summary))


def choose_exit_code(summary: StatusSummary) -> int:
    """0 where all is well, 1 where not, 3 where something waits or is in progress."""
    return summary.exit_code


def is_summary_changing(summary: StatusSummary) -> bool:
    """Whether more happens without a person: only a daemon goes on."""
    from reconciler.status.summary import Outlook

    return summary.daemon_runs and summary.outlook is Outlook.PROGRESSING


def describe_progress(summary: StatusSummary) -> list[str]:
    """What is in progress: a line for all of it, then one for each of the first resources."""
    from reconciler.iteration import MOST_NAMED
    from reconciler.render.layout import strip_control
    from reconciler.status.summary import Outlook

    moving = [resource for resource in summary.unready if resource.outlook is Outlook.PROGRESSING]
    lines = [f"{resource.key}: {strip_control(resource.message)}" for resource in moving[:MOST_NAMED]]
    count = f"waiting: {summary.unready_count} of {summary.total} resources are not ready"
    return [f"{count}; {lines[0]}" if lines else "waiting: the newest commit is not applied yet", *lines[1:]]


def show_details(details: ResourceDetails | SourceDetails, colour: bool) -> str:
    """Sections with headings."""
    from reconciler.queries.resources import ResourceDetails
    from reconciler.render.layout import section_text
    from reconciler.render.resources import resource_sections
    from reconciler.render.sources import source_sections

    if isinstance(details, ResourceDetails):
        return section_text(resource_sections(*details, colour), colour=colour)
    return section_text(source_sections(details, colour), colour=colour)


def show_events(events: Iterable[Event], colour: bool) -> str:
    """A line for each event."""
    from reconciler.render.history import event_line

    return "\n".join(event_line(event, colour) for event in events)


def list_events(events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """The events as JSON values."""
    from reconciler.render.history import event_document

    return map(event_document, events)


def show_runs(runs: Iterable[Run], colour: bool) -> str:
    """A line for each run."""
    from reconciler.render.history import run_line

    return "\n".join(run_line(run, colour) for run in runs)


def list_runs(runs: Iterable[Run]) -> Iterator[dict[str, Any]]:
    """The runs as JSON values."""
    from reconciler.render.history import run_document

    return map(run_document, runs)


def show_snapshots(read: SnapshotOverview, _colour: bool) -> str:
    """A line for each snapshot."""
    from reconciler.render.snapshots import snapshot_table

    return snapshot_table(read.snapshots, read.now)


def list_snapshots(read: SnapshotOverview) -> Iterator[dict[str, Any]]:
    """The snapshots as JSON values."""
    from reconciler.render.snapshots import snapshot_document

    return map(snapshot_document, read.snapshots)


def show_replicas(rows: Sequence[ReplicaRow], colour: bool) -> str:
    """A line for each replica."""
    from reconciler.render.replicas import replica_table

    return "\n".join(replica_table(rows, colour)) if rows else ""


def note_locations(reader: ReplicaReader) -> Iterator[str]:
    """A line if no replica can run here, and one for each location that did not answer."""
    from reconciler.engines.plugin import name_engines

    if not reader.has_locations:
        yield f"the settings bind no location to the engine {name_engines()}"
    for location, fault in sorted(reader.faults.items()):
        yield f"the replicas at {location} are missing: {fault}"


def list_replicas(rows: Sequence[ReplicaRow]) -> list[dict[str, Any]]:
    """The replicas as JSON values."""
    from reconciler.render.replicas import replica_document

    items: list[dict[str, Any]] = replica_document(rows)["replicas"]
    return items
