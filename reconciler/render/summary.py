"""A plan told in numbers and groups: what every way of showing it shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from reconciler.manifests.secret_values import shown
from reconciler.model.key import Key, Kind
from reconciler.planning.plan import Action, ChangeClass, FieldChange, Hold, Plan, Step

HOLD_REASONS = {
    Hold.BUDGET: "more deletes than one run may make",
    Hold.VOLUMES: "it deletes volumes",
    Hold.REPLACE: "it deletes what is there first",
    Hold.ALWAYS: "the settings ask for an approval of every step",
    Hold.DELETES: "the settings ask for an approval of every delete",
}


class Group(msgspec.Struct, frozen=True):
    """Steps of one key that do the same at several locations."""

    step: Step
    locations: tuple[str, ...]
    changes: tuple[FieldChange, ...]


def groups(plan: Plan) -> Iterator[tuple[str, list[Group]]]:
    """The plan's steps by GVC (``""``: the org's own), those of one key and one effect together."""

    def home(step: Step) -> str:
        return step.key.name if step.key.kind is Kind.GVC else step.key.gvc

    position = {step.id: number for number, step in enumerate(plan.steps)}
    ranked = sorted(plan.steps, key=lambda step: (home(step), position[step.id]))
    for gvc, steps in groupby(ranked, key=home):
        alike: dict[tuple[Key, Action, Hold, bool, bytes], list[Step]] = {}
        for step in steps:
            mark = msgspec.json.encode(step.changes)
            alike.setdefault((step.key, step.action, step.hold, step.heals, mark), []).append(step)
        yield gvc, [_group(same) for same in alike.values()]


def _group(steps: list[Step]) -> Group:
    return Group(steps[0], tuple(sorted(step.location for step in steps if step.location)), steps[0].changes)


def changes_of(step: Step) -> tuple[FieldChange, ...]:
    """Every field of a step: of a create and a delete, the fields of the whole body."""
    if step.action not in (Action.CREATE, Action.DELETE):
        return step.changes
    body: dict[str, Any] = msgspec.json.decode(step.body)
    change = ChangeClass.NEW_VERSION if step.key.kind is Kind.WORKLOAD else ChangeClass.IN_PLACE
    fields = ((name, shown(value)) for name, value in sorted(body.items()) if name not in ("kind", "name", "gvc"))
    if step.action is Action.CREATE:
        return tuple(FieldChange(name, None, value, change) for name, value in fields)
    return tuple(FieldChange(name, value, None, change) for name, value in fields)


def summary(plan: Plan) -> dict[str, int]:
    """Keys (not steps) by action; how many wait for approval, are suspended, and stay though Git dropped them."""
    keys = Counter(action for action, _ in {(step.action, step.key) for step in plan.steps})
    held = {step.key for step in plan.steps if step.hold.approvable}
    suspended = {step.key for step in plan.steps if step.hold is Hold.SUSPENDED}
    aside = {"waiting": len(held), "suspended": len(suspended), "kept": len(plan.kept)}
    return {str(action): keys[action] for action in Action} | aside


def sentence(plan: Plan) -> str:
    """``2 to create, 1 to delete (1 waits for approval)``, or that nothing is to be done."""
    count = summary(plan)
    parts = [f"{count[action]} to {action}" for action in Action if count[action]]
    if not parts:
        return "nothing to do"
    waiting = count["waiting"]
    asides = [f"{waiting} {'wait' if waiting > 1 else 'waits'} for approval"] if waiting else []
    asides += [f"{count['suspended']} suspended"] if count["suspended"] else []
    return ", ".join(parts) + (f" ({', '.join(asides)})" if asides else "")


def shown_pair(change: FieldChange) -> tuple[str, str]:
    """Before and after on one line each; what looks the same, since it is secret or long, is said to differ."""
    before, after = one_line(change.before), one_line(change.after)
    return before, "(differs)" if before == after else after


def differences(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    """How two lists of plain values, or two texts of several lines, differ: ``+``, ``-`` or a blank, and the line.

    Nothing for any other pair, and for lists that differ in their order alone: those are best shown whole.
    """
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return
    if len(old) == len(before) and len(new) == len(after) and isinstance(before, list):
        yield from (("-", line) for line in old if line not in new)
        yield from (("+", line) for line in new if line not in old)
    elif max(len(old), len(new)) > 1:
        from difflib import unified_diff  # only long texts need it

        unified = list(unified_diff(old, new, lineterm="", n=1))
        yield from ((line[0], line[1:]) for line in unified[2:] if line[0] in "+- ")


def _lines(value: Any) -> list[str] | None:
    """The lines of a text, or of all members of a list; None where the value is, or holds, anything deeper."""
    if isinstance(value, str):
        return [_printable(line) for line in value.splitlines()]
    if not isinstance(value, list) or any(isinstance(member, dict | list) for member in value):
        return None
    texts = (member if isinstance(member, str) else one_line(member) for member in value)
    return [_printable(line) for text in texts for line in text.splitlines() or [""]]


def _printable(line: str) -> str:
    """``line`` without what could steer a terminal."""
    return "".join(
        sign if sign.isprintable() else " " if sign == "\t" else "\N{REPLACEMENT CHARACTER}" for sign in line
    )


def one_line(value: Any, width: int = 60) -> str:
    """A value as JSON on one line, shortened in the middle where it is longer than ``width``."""
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) and value.isprintable() and value else msgspec.json.encode(value).decode()
    if len(text) <= width:
        return text
    return f"{text[: width // 2]} … {text[-(width // 2 - 3) :]}"
