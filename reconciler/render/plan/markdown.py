"""A plan as Markdown, for the comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.revision import shorten_id, shorten_revision
from reconciler.planning.blame import WHOLE, Blames, format_blame
from reconciler.planning.plan import Action, FieldChange, Plan
from reconciler.printable import code_span
from reconciler.render.plan.summary import StepGroup, diff_lines, format_summary, group_steps, shown_pair
from reconciler.render.plan.text import NOTES

WORDS = {Action.CREATE: "create", Action.UPDATE: "update", Action.REPLACE: "**replace**", Action.DELETE: "**delete**"}
MOST_GROUPS = 200
"""The most rows, since forges cut long comments; the rest are only counted."""
MAX_FIELDS = 100
"""The most changed fields shown of one resource."""
MAX_LINES = 50
"""The most lines shown of one side of a field's difference."""
MAX_AUTHORS = 3
"""The most commits named in the row of a resource."""


def render_markdown(plan: Plan, blames: Blames | None = None, since: str = "") -> str:
    """A heading, a table of resources with their actions, and the changed fields folded below it.

    With ``blames`` both name the author of each change. ``since`` is the base revision, where that is not the applied
    one.
    """
    compared = f", compared with {code_span(shorten_revision(since))}" if since else ""
    source = f"Source {code_span(plan.source)}, revision {code_span(shorten_revision(plan.revision))}{compared}"
    lines = [f"### Plan: {format_summary(plan)}", "", source]
    members = [group for _, section in group_steps(plan) for group in section]
    if members:
        lines += ["", *_render_heading(["action", "resource", "locations", "fields"], blames)]
        lines += [_render_group_row(group) + _by_whom(group, blames) for group in members[:MOST_GROUPS]]
        if len(members) > MOST_GROUPS:
            lines += ["", f"… and {len(members) - MOST_GROUPS} more."]
        lines += list(_render_details(members[:MOST_GROUPS], blames))
    renamed = ((code_span(str(rename.before)), code_span(str(rename.after))) for rename in plan.renames)
    lines += [f"\n- Renamed: {before} → {after}" for before, after in renamed]
    lines += [f"\n- Retained: {code_span(str(resource.key))} ({resource.reason})" for resource in plan.retained]
    if plan.refusal:
        lines += ["", f"What waits was {code_span(plan.refusal)}."]
    if plan.hold_digest:
        lines += ["", f"Approve what waits: {code_span(f'reconciler approve {shorten_id(plan.hold_digest)}')}."]
    if plan.steps:
        lines += ["", f"<sub>digest {code_span(shorten_id(plan.digest))}</sub>"]
    return "\n".join(lines) + "\n"


def _render_group_row(group: StepGroup) -> str:
    step = group.step
    notes = f" ({group.waiting})" if group.waiting else ""
    notes += " (heals drift)" if step.heals else ""
    fields = str(len(group.changes)) if group.changes else ""
    return f"| {WORDS[step.action]}{notes} | {code_span(str(step.key))} | {', '.join(group.locations)} | {fields} |"


def _render_heading(names: list[str], blames: Blames | None) -> Iterator[str]:
    names = names if blames is None else [*names, "commit"]
    yield "|" + "".join(f" {name} |" if name else " |" for name in names)
    yield "|---" * len(names) + "|"


def _format_blame_cell(group: StepGroup, path: str, blames: Blames | None) -> str:
    """A further cell of a row, where ``blames`` are shown."""
    return "" if blames is None else f" {code_span(format_blame(blames.get((group.step.id, path))))} |"


def _by_whom(group: StepGroup, blames: Blames | None) -> str:
    """The last cell of a resource: the commits that create or delete it, or change its fields."""
    if blames is None or not group.changes:
        return _format_blame_cell(group, WHOLE, blames)
    causes = [blames.get((group.step.id, change.path)) for change in group.changes]
    commits = list(
        dict.fromkeys(f"{blame.commit[:12]} {blame.author}" if blame.commit else "older" for blame in causes if blame)
    )
    more = f" and {len(commits) - MAX_AUTHORS} more" if len(commits) > MAX_AUTHORS else ""
    return f" {', '.join(map(code_span, commits[:MAX_AUTHORS]))}{more} |"


def _render_details(members: list[StepGroup], blames: Blames | None) -> Iterator[str]:
    changed = [group for group in members if group.changes]
    if not changed:
        return
    yield "\n<details><summary>Changed fields</summary>\n"
    for group in changed:
        yield f"{code_span(str(group.step.key))}\n"
        yield from _render_heading(["field", "before", "after", ""], blames)
        for change in group.changes[:MAX_FIELDS]:
            before, after = _format_value_cells(change)
            row = f"| {code_span(change.path)} | {before} | {after} | {NOTES[change.change]} |"
            yield row + _format_blame_cell(group, change.path, blames)
        if len(group.changes) > MAX_FIELDS:
            yield f"\n… and {len(group.changes) - MAX_FIELDS} more fields."
        yield ""
    yield "</details>"


def _format_value_cells(change: FieldChange) -> tuple[str, str]:
    """The values before and after; for long values the lines that only one of them has."""
    pair = shown_pair(change)
    if pair is not None:
        return code_span(pair[0]), code_span(pair[1])
    parts = diff_lines(change.before, change.after)
    return _format_cell(parts, "-"), _format_cell(parts, "+")


def _format_cell(parts: list[tuple[str, str]], sign: str) -> str:
    lines = [line for text, line in parts if text == sign]
    more = f"<br>… and {len(lines) - MAX_LINES} more lines" if len(lines) > MAX_LINES else ""
    return "<br>".join(code_span(f"{sign} {line}") for line in lines[:MAX_LINES]) + more
