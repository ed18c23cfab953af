"""One source as text: whether its newest commit is live, and if not, why."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.daemon.lock import holder
from reconciler.errors import SourceError
from reconciler.model.revision import Revision
from reconciler.queries.source_state import SourceState, applied_sentence, source_lines, source_state
from reconciler.reasons import ConditionType
from reconciler.records.store import Records
from reconciler.records.tables.suspensions import source_target
from reconciler.render.layout import columns, strip_control
from reconciler.settings import Settings, SourceSettings
from reconciler.source.source import open_source
from reconciler.times import iso

_RUNS, _EVENTS = 5, 10


def source_sections(
    settings: Settings, records: Records, source: SourceSettings, on: bool
) -> Iterator[tuple[str, str]]:
    """Titles with their lines, as for a resource; coloured where ``on``."""
    from reconciler.cli.commands.events import as_line as event_line
    from reconciler.cli.commands.history import as_line as run_line

    state = source_state(records, source.name)
    yield "", source_target(source.name) + "\n" + columns(list(_summary(settings, records, source, state)), "  ")
    rows = [(each.type, str(each.status), each.reason, f"since {iso(each.since)}", strip_control(each.message))
            for each in state.conditions.values()]  # fmt: skip
    yield "Conditions", columns(rows, "  ", {"True": "green", "False": "red"} if on else None) if rows else ""
    yield "Runs", "\n".join("  " + run_line(run, on) for run in records.runs.list(_RUNS, source.name))
    found = records.events.list(source_target(source.name), limit=_EVENTS)
    yield "Events", "\n".join("  " + event_line(event, on) for event in found)


def _summary(
    settings: Settings, records: Records, source: SourceSettings, state: SourceState
) -> Iterator[tuple[str, str]]:
    try:
        newest, unreadable = open_source(source, settings.state).revision(""), ""
    except SourceError as error:
        newest, unreadable = None, str(error)
    yield "Live", strip_control(_answer(settings, state, newest))
    yield "Repository", source.url
    made = f"{newest} ({newest.subject}, {newest.author})" if newest is not None else f"cannot be read: {unreadable}"
    yield "Newest", strip_control(made)
    row = state.applied
    applied = f"{row.ref} {row.commit} ({row.subject}, {row.author})" if row is not None else "nothing yet"
    yield "Applied", strip_control(applied)
    counts: dict[str, int] = {}
    for (_, health), count in records.applied.counts(source.name).items():
        counts[str(health)] = counts.get(str(health), 0) + count
    yield "Resources", ", ".join(f"{count} {health}" for health, count in counts.items() if count) or "none"


def _answer(settings: Settings, state: SourceState, newest: Revision | None) -> str:
    """Whether the newest commit is applied, in a sentence."""
    reasons = [line.partition(": ")[2] for line in source_lines(state)]
    there = state.applied is not None and newest is not None and state.applied.commit == newest.commit
    if reasons and not (there and state.trouble is None and state.suspension is None):
        return f"no: {'; '.join(reasons)}"
    ready = state.conditions.get(ConditionType.READY)
    if there and ready is not None:
        return "yes" if ready.status else f"not all of it: {ready.reason}: {ready.message}"
    if newest is None:
        return f"not known: the repository cannot be read now; {applied_sentence(state)}"
    who = holder(settings.state)
    waits = "the next poll looks at it" if who else "no daemon runs; `reconciler apply` looks at it"
    return f"not yet: {newest.commit[:12]} ({newest.subject}) was not looked at; {waits}"
