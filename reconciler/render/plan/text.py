"""A plan as text for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.revision import shorten_id, shorten_revision
from reconciler.planning.blame import WHOLE, Blames, format_blame
from reconciler.planning.plan import Action, ChangeClass, FieldChange, Plan
from reconciler.printable import escape_text
from reconciler.render.plan.summary import StepGroup, diff_lines, format_summary, group_steps, shown_pair

SIGNS = {Action.CREATE: "+", Action.UPDATE: "~", Action.REPLACE: "±", Action.DELETE: "-"}
COLOURS = {Action.CREATE: "32", Action.UPDATE: "33", Action.REPLACE: "35", Action.DELETE: "31"}
NOTES = {
    ChangeClass.IN_PLACE: "",
    ChangeClass.SCALE_ONLY: "scale only",
    ChangeClass.NEW_VERSION: "new version",
    ChangeClass.REPLACE: "replaces it",
}

PART_COLOURS = {"+": "32", "-": "31", " ": "2"}
MAX_PARTS = 100
"""The most lines shown of one field's difference; the rest are only counted."""
MAX_CHANGES = 500
"""The most changed fields shown of one resource; the rest are only counted."""


def render_plan_text(plan: Plan, *, colour: bool = False, blames: Blames | None = None, since: str = "") -> str:
    """The whole plan, grouped by GVC, with the authors of changes; ends with a summary line and a newline.

    ``since`` is the base revision, where that is not the applied one.
    """
    paint = _Paint(colour)
    way = " → ".join(shorten_revision(text) for text in (since, plan.revision) if text)
    lines = [f"{paint('1', plan.source)}  {escape_text(way)}", ""]
    for gvc, members in group_steps(plan):
        lines.append(paint("1", f"gvc {gvc}" if gvc else "org"))
        for group in members:
            lines.extend(_render_group(group, paint, blames or {}))
        lines.append("")
    lines.extend(_render_notes(plan))
    lines.append(f"Plan: {format_summary(plan)}." + (f"  digest {shorten_id(plan.digest)}" if plan.steps else ""))
    if plan.refusal:
        lines.append(escape_text(f"What waits was {plan.refusal}"))
    if plan.hold_digest:
        lines.append(f"Approve what waits: reconciler approve {shorten_id(plan.hold_digest)}")
    return "\n".join(lines) + "\n"


def _render_group(group: StepGroup, paint: _Paint, blames: Blames) -> Iterator[str]:
    step = group.step
    colour = COLOURS[step.action]
    places = f"  at {', '.join(group.locations)}" if group.locations else ""

    def by(path: str) -> str:
        author = escape_text(format_blame(blames.get((step.id, path))))
        return paint("2", f"  ({author})" if author else "")

    hold = f"  {group.waiting}" if group.waiting else ""
    places += "  heals drift" if step.heals else ""
    name = paint(colour, str(step.key))
    yield f"  {paint(colour, SIGNS[step.action])} {name}{paint('2', places)}{paint('35', hold)}{by(WHOLE)}"
    width = max((len(change.path) for change in group.changes), default=0)
    for change in group.changes[:MAX_CHANGES]:
        yield from _render_change(change, min(width, 60), by(change.path), paint)
    if len(group.changes) > MAX_CHANGES:
        yield f"      … and {len(group.changes) - MAX_CHANGES} more fields"


def _render_change(change: FieldChange, width: int, by: str, paint: _Paint) -> Iterator[str]:
    note = paint("2", f"  {NOTES[change.change]}" if NOTES[change.change] else "") + by
    pair = shown_pair(change)
    if pair is not None:
        yield f"      {escape_text(change.path):<{width}}  {pair[0]} → {paint('1', pair[1])}{note}"
        return
    parts = diff_lines(change.before, change.after)
    yield f"      {escape_text(change.path)}{note}"
    for sign, part in parts[:MAX_PARTS]:
        yield "        " + paint(PART_COLOURS[sign], f"{sign} {part}".rstrip())
    if len(parts) > MAX_PARTS:
        yield f"        … and {len(parts) - MAX_PARTS} more lines"


def _render_notes(plan: Plan) -> Iterator[str]:
    for rename in plan.renames:
        yield f"Renamed: {rename.before} → {rename.after} (otherwise equal; it is deleted and created again)"
    for resource in plan.retained:
        yield f"Retained: {resource.key} is no longer in Git; {resource.reason}"
    if plan.renames or plan.retained:
        yield ""


class _Paint:
    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, code: str, words: str) -> str:
        return f"\x1b[{code}m{words}\x1b[0m" if self.on and words else words
