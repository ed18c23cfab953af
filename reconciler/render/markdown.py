"""A plan as Markdown, for the comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reconciler.planning.blame import WHOLE, Blames, shown
from reconciler.planning.plan import Action, Hold, Plan
from reconciler.render.summary import HOLD_REASONS, Group, groups, sentence, shown_pair
from reconciler.render.text import NOTES

WORDS = {Action.CREATE: "create", Action.UPDATE: "update", Action.REPLACE: "**replace**", Action.DELETE: "**delete**"}
MOST_GROUPS = 200
"""Forges cut long comments; beyond this many rows only the count is given."""


def markdown(plan: Plan, blames: Blames | None = None) -> str:
    """A heading, a table of what happens to which resource, and the changed fields folded below it.

    With ``blames`` both say who asked for what.
    """
    lines = [f"### Plan: {sentence(plan)}", "", f"Source `{plan.source}`, revision `{plan.revision}`"]
    members = [group for _, found in groups(plan) for group in found]
    if members:
        lines += ["", *_heading(["action", "resource", "locations", "fields"], blames)]
        lines += [_row(group) + _by(group, WHOLE, blames) for group in members[:MOST_GROUPS]]
        if len(members) > MOST_GROUPS:
            lines += ["", f"… and {len(members) - MOST_GROUPS} more."]
        lines += list(_details(members[:MOST_GROUPS], blames))
    lines += [f"\n- Renamed: `{rename.before}` → `{rename.after}`" for rename in plan.renames]
    lines += [f"\n- Kept: `{kept.key}` ({kept.reason})" for kept in plan.kept]
    if plan.held:
        lines += ["", f"What waits is let go by `reconciler approve {plan.held}`."]
    if plan.steps:
        lines += ["", f"<sub>digest `{plan.digest}`</sub>"]
    return "\n".join(lines) + "\n"


def _row(group: Group) -> str:
    step = group.step
    waits = f" (waits: {HOLD_REASONS[step.hold]})" if step.hold.approvable else " (suspended)"
    held = waits if step.hold is not Hold.NONE else ""
    held += " (heals drift)" if step.heals else ""
    fields = str(len(group.changes)) if group.changes else ""
    return f"| {WORDS[step.action]}{held} | `{step.key}` | {', '.join(group.locations)} | {fields} |"


def _heading(names: list[str], blames: Blames | None) -> Iterator[str]:
    names = names if blames is None else [*names, "asked for by"]
    yield "|" + "".join(f" {name} |" if name else " |" for name in names)
    yield "|---" * len(names) + "|"


def _by(group: Group, path: str, blames: Blames | None) -> str:
    """One more cell of a row, where somebody was looked for."""
    return "" if blames is None else f" {code(shown(blames.get((group.step.id, path))))} |"


def _details(members: list[Group], blames: Blames | None) -> Iterator[str]:
    changed = [group for group in members if group.changes]
    if not changed:
        return
    yield "\n<details><summary>Changed fields</summary>\n"
    for group in changed:
        yield f"`{group.step.key}`\n"
        yield from _heading(["field", "before", "after", ""], blames)
        for change in group.changes:
            before, after = shown_pair(change)
            row = f"| {code(change.path)} | {code(before)} | {code(after)} | {NOTES[change.change]} |"
            yield row + _by(group, change.path, blames)
        yield ""
    yield "</details>"


def code(value: str) -> str:
    """``value`` as code that can neither end a table's cell nor become a mention or HTML; nothing where it is empty."""
    if not value:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", value)), default=0))
    pad = " " if "`" in value else ""
    return f"{fence}{pad}{value.replace('|', chr(92) + '|')}{pad}{fence}"
