"""The counts and groups of a plan, shared by all its formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from reconciler.manifests.secret_values import strip_digest
from reconciler.model.key import Key, Kind
from reconciler.planning.plan import Action, ChangeClass, FieldChange, Hold, Plan, Step, StepId, causes_of_waiting
from reconciler.printable import escape_text, printable_json

HOLD_REASONS = {
    Hold.BUDGET: "more deletes than one run may make",
    Hold.HOURLY: "more deletes than the runs of an hour may make",
    Hold.VOLUMES: "it deletes volumes",
    Hold.RENAME: "it replaces volumes whose delete waits",
    Hold.REPLACE: "it deletes the existing resource first",
    Hold.ALWAYS: "the settings require an approval of every step",
    Hold.DELETES: "the settings require an approval of every delete",
}

DIFFERS = "(differs)"
"""Replaces a changed secret value, which looks the same before and after."""
MAX_INLINE = 60
"""Characters up to which a value is shown beside its new value; a longer one has a line of its own."""
MAX_LINE = 1_000
"""The most characters in a line of a difference; the line is cut at its end."""
_CONTEXT = 40
"""Characters shown before the difference of two long lines."""
_MAX_ALIGNED = 1_000_000
"""Pairs of lines up to which two texts are aligned; longer texts are shown whole."""


class StepGroup(msgspec.Struct, frozen=True):
    """Steps of one key with the same effect at several locations; ``cause`` is a held step that they wait for."""

    step: Step
    locations: tuple[str, ...]
    changes: tuple[FieldChange, ...]
    cause: Step | None = None

    @property
    def waiting(self) -> str:
        """Why the next run does not perform it; "" if it does."""
        if self.cause is not None:
            why = "waits for approval" if self.cause.hold.approvable else "is suspended"
            return f"waits for {self.cause.key}, which {why}"
        if self.step.hold is Hold.SUSPENDED:
            return "suspended"
        if self.step.hold is Hold.NONE:
            return ""
        until = f"; the budget allows more at {self.step.hold_until}" if self.step.hold_until else ""
        return f"waits for approval: {HOLD_REASONS[self.step.hold]}{until}"


def group_steps(plan: Plan) -> Iterator[tuple[str, list[StepGroup]]]:
    """Return the plan's steps by GVC (``""``: the org), grouped by key and effect."""

    def home(step: Step) -> str:
        return step.key.name if step.key.kind is Kind.GVC else step.key.gvc

    position = {step.id: number for number, step in enumerate(plan.steps)}
    causes = causes_of_waiting(plan.steps)
    ranked = sorted(plan.steps, key=lambda step: (home(step), position[step.id]))
    for gvc, steps in groupby(ranked, key=home):
        alike: dict[tuple[Key, Action, Hold, bool, Key | None, bytes], list[Step]] = {}
        for step in steps:
            mark = msgspec.json.encode(step.changes)
            cause = causes[step.id].key if step.id in causes else None
            alike.setdefault((step.key, step.action, step.hold, step.heals, cause, mark), []).append(step)
        yield gvc, [_make_group(same, causes) for same in alike.values()]


def _make_group(steps: list[Step], causes: Mapping[StepId, Step]) -> StepGroup:
    places = tuple(sorted(step.location for step in steps if step.location))
    return StepGroup(steps[0], places, steps[0].changes, causes.get(steps[0].id))


def changes_of(step: Step) -> tuple[FieldChange, ...]:
    """Every field of a step: of a create and a delete, the fields of the whole body."""
    if step.action not in (Action.CREATE, Action.DELETE):
        return step.changes
    body: dict[str, Any] = msgspec.json.decode(step.body)
    change = ChangeClass.NEW_VERSION if step.key.kind is Kind.WORKLOAD else ChangeClass.IN_PLACE
    fields = (
        (name, strip_digest(value)) for name, value in sorted(body.items()) if name not in ("kind", "name", "gvc")
    )
    if step.action is Action.CREATE:
        return tuple(FieldChange(name, None, value, change) for name, value in fields)
    return tuple(FieldChange(name, value, None, change) for name, value in fields)


def count_actions(plan: Plan) -> dict[str, int]:
    """Count keys (not steps) by action; and those that wait for approval, are suspended, or stay as orphans.

    ``blocked`` counts those that wait for a held or suspended one.
    """
    keys = Counter(action for action, _ in {(step.action, step.key) for step in plan.steps})
    on_hold = {step.key for step in plan.steps if step.hold.approvable}
    suspended = {step.key for step in plan.steps if step.hold is Hold.SUSPENDED}
    blocked = {cause.key for cause in causes_of_waiting(plan.steps)}
    aside = {
        "waiting": len(on_hold),
        "suspended": len(suspended),
        "blocked": len(blocked),
        "retained": len(plan.retained),
    }
    return {str(action): keys[action] for action in Action} | aside


def format_summary(plan: Plan) -> str:
    """``2 to create, 1 to delete (1 waits for approval)``, or a sentence for an empty plan."""
    count = count_actions(plan)
    parts = [f"{count[action]} to {action}" for action in Action if count[action]]
    if not parts:
        return "nothing to do"
    waiting = count["waiting"]
    asides = [f"{waiting} {'wait' if waiting > 1 else 'waits'} for approval"] if waiting else []
    asides += [f"{count['suspended']} suspended"] if count["suspended"] else []
    blocked = count["blocked"]
    asides += [f"{blocked} {'wait' if blocked > 1 else 'waits'} for one of them"] if blocked else []
    return ", ".join(parts) + (f" ({', '.join(asides)})" if asides else "")


def shown_pair(change: FieldChange) -> tuple[str, str] | None:
    """The values before and after, if one line can show both in full; else None: use ``diff_lines``.

    Secret values look the same before and after, so ``DIFFERS`` replaces the second.
    """
    values = change.before, change.after
    before, after = map(one_line, values)
    if before == after:
        return _cut_line(before), DIFFERS
    both_lists = all(isinstance(value, list) for value in values)
    several_lines = any(isinstance(value, str) and "\n" in value for value in values)
    return None if both_lists or several_lines or max(len(before), len(after)) > MAX_INLINE else (before, after)


def diff_lines(before: Any, after: Any) -> list[tuple[str, str]]:
    """Return the lines of a difference: ``-`` or ``+`` (a blank: in both, for context), and the text.

    For lists of plain values and for texts, only the entries or lines that differ are shown, and so are the lines of
    an entry that is a text. Other values are shown whole, as YAML; a long line is cut in the part that both share, and
    at its end.
    """
    old, new = _split_lines(before), _split_lines(after)
    if isinstance(before, list) and isinstance(after, list):
        return _texts_changed(before, after) or _entries_changed(old, new) or _unified_diff(old, new)
    if isinstance(before, str) and isinstance(after, str) and max(len(old), len(new)) > 1:
        return _unified_diff(old, new)
    if len(old) == len(new) == 1:
        old[0], new[0] = _around_difference(old[0], new[0])
    return [("-", _cut_line(line)) for line in old] + [("+", _cut_line(line)) for line in new]


def _texts_changed(before: list[Any], after: list[Any]) -> list[tuple[str, str]]:
    """The difference of two lists in which long texts, of one or more lines, became other ones; else empty.

    Texts are paired in their order; what else comes or goes has a line of its own.
    """
    gone, come = _only_in(before, after), _only_in(after, before)
    old, new = ([entry for entry in entries if _is_long_text(entry)] for entries in (gone, come))
    if not old or len(old) != len(new):
        return []
    others = ([one_line(entry) for entry in before if entry not in old], [one_line(e) for e in after if e not in new])
    changed = _entries_changed(*others) if others[0] != others[1] else []
    if others[0] != others[1] and not changed:
        return []
    texts = [line for pair in zip(old, new, strict=True) for line in diff_lines(*pair)]
    return texts + changed


def _only_in(entries: list[Any], others: list[Any]) -> list[Any]:
    """The texts of ``entries`` that ``others`` does not have."""
    known = {entry for entry in others if isinstance(entry, str)}
    return [entry for entry in entries if isinstance(entry, str) and entry not in known]


def _is_long_text(entry: Any) -> bool:
    return isinstance(entry, str) and ("\n" in entry or len(entry) > MAX_LINE)


def _entries_changed(old: list[str], new: list[str]) -> list[tuple[str, str]]:
    """Entries that only one of two lists has; empty if the order of the others differs too."""
    gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
    if _remove_counted(old, gone) != _remove_counted(new, come):
        return []
    return [("-", _cut_line(line)) for line in gone.elements()] + [("+", _cut_line(line)) for line in come.elements()]


def _remove_counted(lines: list[str], counts: Mapping[str, int]) -> list[str]:
    """``lines`` without the last ``counts`` occurrences of each."""
    left, remaining = Counter(counts), []
    for line in reversed(lines):
        if left[line]:
            left[line] -= 1
        else:
            remaining.append(line)
    return remaining[::-1]


def _unified_diff(old: list[str], new: list[str]) -> list[tuple[str, str]]:
    start = _count_alike(old, new)
    end = min(_count_alike(old[::-1], new[::-1]), min(len(old), len(new)) - start)
    # One of the lines that are alike is shown on each side.
    old, new = (lines[max(0, start - 1) : len(lines) - max(0, end - 1)] for lines in (old, new))
    if len(old) * len(new) > _MAX_ALIGNED:
        return [("-", _cut_line(line)) for line in old] + [("+", _cut_line(line)) for line in new]
    from difflib import unified_diff  # only long texts need it

    unified = list(unified_diff(old, new, lineterm="", n=1))
    return [(line[0], _cut_line(line[1:])) for line in unified[2:] if line[0] in "+- "]


def _count_alike(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines, or characters, are the same at the start."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(old), len(new)))


def _around_difference(old: str, new: str) -> tuple[str, str]:
    """Two long lines without most of their common start."""
    alike = _count_alike(old, new)
    if max(len(old), len(new)) <= MAX_LINE or alike <= _CONTEXT:
        return old, new
    left_out = f"… {alike - _CONTEXT} characters alike … "
    return left_out + old[alike - _CONTEXT :], left_out + new[alike - _CONTEXT :]


def _cut_line(line: str) -> str:
    """``line``, cut at its end where it is longer than ``MAX_LINE``."""
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} … and {len(line) - MAX_LINE} more characters"


def _split_lines(value: Any) -> list[str]:
    """The lines of a text, the entries of a list of plain values, else lines of YAML; empty for no value."""
    if value is None:
        return []
    if isinstance(value, str):
        return [escape_text(line) for line in value.removesuffix("\n").split("\n")] if value else ['""']
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict | list) for item in value)):
        from reconciler.documents.writer import render_document  # only what comes or goes as a whole needs it

        return [escape_text(line) for line in render_document(value).splitlines()]
    if not isinstance(value, list):
        return [one_line(value)]
    return [one_line(item) for item in value] or ["[]"]


def one_line(value: Any) -> str:
    """A value on one line: a text as it is where that is unambiguous, else JSON."""
    if value is None:
        return "(none)"
    plain = isinstance(value, str) and value.isprintable() and value
    return value if plain else printable_json(msgspec.json.encode(value).decode())
