"""The status in one look, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.model.revision import revision_text, shorten_id
from reconciler.printable import truncate_text
from reconciler.reasons import ConditionType
from reconciler.render.layout import align_columns, paint_text, strip_control
from reconciler.render.sources import source_document, trouble_sentence
from reconciler.status.summary import Outlook, SourceSummary, StatusSummary
from reconciler.status.waiting import pinned_by, suspended_by

_COLOURS = {
    Outlook.WELL: "green",
    Outlook.PROGRESSING: "yellow",
    Outlook.WAITING: "yellow",
    Outlook.FAILING: "red",
}
_TITLES = {
    Outlook.FAILING: "Not well",
    Outlook.WAITING: "Waits for a person",
    Outlook.PROGRESSING: "In progress",
}
_DIGEST = 12
"""The shown characters of commits and digests."""


def summary_text(summary: StatusSummary, colour: bool) -> str:
    """A block for each source, the resources that are not ready by their outlook, and a sentence about all."""
    blocks = [_format_source(source, summary.daemon_runs, colour) for source in summary.sources]
    if summary.host:
        faults = [(condition.reason, strip_control(condition.message)) for condition in summary.host]
        blocks.append(f"{paint_text('Daemon', 'bold', colour)}\n{align_columns(faults, '  ')}")
    for outlook, title in _TITLES.items():
        if rows := _make_rows(summary, outlook):
            blocks.append(f"{paint_text(title, 'bold', colour)}\n{align_columns(rows, '  ')}")
    if summary.last_lines:
        lines = [(str(key), truncate_text(strip_control(line))) for key, line in summary.last_lines.items()]
        blocks.append(f"{paint_text('Last lines of their logs', 'bold', colour)}\n{align_columns(lines, '  ')}")
    sentence = paint_text(_format_verdict(summary), _COLOURS[summary.outlook], colour)
    return "\n\n".join((*blocks, sentence))


def summary_document(summary: StatusSummary) -> dict[str, Any]:
    """The same as JSON values; ``outlook`` is well, progressing, waiting or failing."""
    return {
        "outlook": summary.outlook,
        "exitCode": summary.exit_code,
        "daemon": summary.daemon_runs,
        "commit": msgspec.to_builtins(summary.commit),
        "sources": [_make_source_document(source) for source in summary.sources],
        "daemonConditions": [msgspec.structs.asdict(condition) for condition in summary.host],
        "unready": [{**msgspec.structs.asdict(resource), "key": str(resource.key)} for resource in summary.unready],
        "unreadyCount": summary.unready_count,
        "total": summary.total,
    }


def _make_source_document(source: SourceSummary) -> dict[str, Any]:
    newest = source.newest
    seen = {"revision": revision_text(newest.ref, newest.commit), "subject": newest.subject} if newest else None
    return {
        **source_document(source.status),
        "url": source.url,
        "outlook": source.outlook,
        "newest": seen,
        "unreadable": source.unreadable or None,
        "approvals": [f"reconciler approve {digest[:_DIGEST]}" for digest in source.approvals],
        "refusals": dict(source.refusals),
    }


def _format_source(source: SourceSummary, daemon_runs: bool, colour: bool) -> str:
    name = paint_text(f"source/{source.status.name}", "bold", colour)
    rows = [(title, strip_control(line)) for title, line in _list_rows(source, daemon_runs)]
    return f"{name}\n{align_columns(rows, '  ')}"


def _list_rows(source: SourceSummary, daemon_runs: bool) -> Iterator[tuple[str, str]]:
    status, newest, applied = source.status, source.newest, source.status.applied
    follows = f" {shorten_id(newest.ref) if newest.ref == newest.commit else newest.ref}" if newest is not None else ""
    yield "Follows", f"{source.url}{follows}"
    trouble = status.trouble.message if status.trouble is not None else ""
    # What a run met is nearer to the cause: of a remote, the copy here may be empty.
    is_known = status.trouble is not None and status.trouble.type == ConditionType.SOURCE_REACHABLE
    if source.unreadable and not is_known:
        yield "Unreadable", source.unreadable
    if applied is not None:
        yield "Live", f"{applied.commit[:_DIGEST]} {applied.subject} ({applied.author})"
    else:
        yield "Live", "nothing yet"
    if newest is not None and not source.is_current:
        yield "Newest", f"{newest.commit[:_DIGEST]} {newest.subject} ({newest.author})"
    if status.trouble is not None:
        yield "Refusal" if status.refused is not None else "Trouble", trouble_sentence(status, status.trouble)
        if status.refused is not None:
            yield "Repair", "reconciler plan shows each error with its line, and what to do"
    elif newest is not None and not source.is_current and status.suspension is None and status.pin is None:
        yield "Next", "the daemon reads it" if daemon_runs else "no daemon runs; `reconciler apply` reads it"
    pushed = status.conditions.get(ConditionType.STATUS_PUSHED)
    if pushed is not None and not pushed.status and pushed.message != trouble:
        yield "Status branch", f"not written: {pushed.message}"
    if status.suspension is not None:
        yield "Suspension", f"{suspended_by(status.suspension)}; to end it: reconciler resume {status.name}"
    if status.pin is not None:
        yield "Rollback", f"{pinned_by(status.pin)}; to end it: reconciler resume {status.name}"
    for digest in source.approvals:
        yield "Approval", f"reconciler plan shows what waits; reconciler approve {digest[:_DIGEST]}"
    for digest, refusal in source.refusals.items():
        yield "Decision", f"{refusal}; waits for another commit, or an approval: reconciler approve {digest[:_DIGEST]}"


def _make_rows(summary: StatusSummary, outlook: Outlook) -> list[list[str]]:
    """Key, reason and message of each resource with ``outlook``."""
    chosen = (resource for resource in summary.unready if resource.outlook is outlook)
    return [[str(resource.key), resource.reason, strip_control(resource.message)] for resource in chosen]


def _format_verdict(summary: StatusSummary) -> str:
    """``13 resources, 2 not ready: not all is well``."""
    more = summary.unready_count - len(summary.unready)
    listed = f" ({more} more are not listed; see: reconciler get)" if more > 0 else ""
    resources = f"{summary.total} resource{'' if summary.total == 1 else 's'}"
    counted = f"{resources}, {summary.unready_count or 'none'} not ready{listed}" if summary.total else "no resources"
    verdict = {
        Outlook.WELL: "all is well",
        Outlook.PROGRESSING: "in progress",
        Outlook.WAITING: "it waits for a person",
        Outlook.FAILING: "not all is well",
    }[summary.outlook]
    commit = f"{summary.commit.message}; " if summary.commit is not None else ""
    return f"{commit}{counted}: {verdict}"
