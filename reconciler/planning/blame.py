"""Blame: the commit that made a change, and the line of the field in its file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from reconciler.model.finding import Pointer
from reconciler.planning.diff import diff_bodies
from reconciler.planning.field_paths import steps_of
from reconciler.planning.plan import Action, Plan, Step, StepId

WHOLE = ""
"""The path of a created or deleted resource as a whole."""

_INDEX = r"(?<!\.ports)\[\d+\]"
"""The index of a list entry, which another commit may have moved. The numbers of ports are names."""


class Blame(msgspec.Struct, frozen=True):
    """The commit that made a change, and the line of the field in the file of that commit.

    ``commit`` is "" if it is older than the search reaches; ``line`` is 0 if the file no longer has the field.
    """

    commit: str
    author: str
    path: str
    line: int


Blames: TypeAlias = Mapping[tuple[StepId, str], Blame]
"""By step and path of the changed field (``WHOLE`` for creates and deletes)."""


def blamable_paths(step: Step) -> list[str]:
    """The paths of ``step`` that a commit changed; none if it heals drift."""
    if step.heals:
        return []
    if step.action in (Action.CREATE, Action.DELETE):
        return [WHOLE]
    return [change.path for change in step.changes]


def count_blamed_changes(plan: Plan) -> int:
    """The number of changes with a blame; a change at several locations counts once."""
    return len({(step.key, path) for step in plan.steps for path in blamable_paths(step)})


def changed_paths(step: StepId, before: bytes | None, after: bytes | None, paths: Iterable[str]) -> list[str]:
    """The ``paths`` that differ between two bodies (JSON; None: absent) of the key of ``step``, at its location."""
    if before is None or after is None:
        return list(paths) if (before is None) != (after is None) else []
    changed = [change.path for change in diff_bodies(step.key.kind, before, after, step.location)]
    return [path for path in paths if path and any(_has_path_overlap(path, other) for other in changed)]


def _has_path_overlap(one: str, other: str) -> bool:
    short, long = sorted((re.sub(_INDEX, "[]", one), re.sub(_INDEX, "[]", other)), key=len)
    return long == short or (long.startswith(short) and long[len(short)] in ".[")


def pointer_of(path: str, value: Any) -> Pointer:
    """The pointer to the field ``path`` of a plan in ``value``, the document as written, as far as it exists."""
    steps: list[str | int] = []
    for name, is_item, is_quoted in steps_of(path):
        is_position = is_item and (isinstance(value, list) or not is_quoted)
        step: str | int | None = _find_item_index(name, value) if is_position else name
        there = step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int)
        if step is None or not there:
            break
        value = value[step]
        steps.append(step)
    return tuple(steps)


def _find_item_index(name: str, value: Any) -> int | None:
    """The index of the item of ``value`` that plans call ``name``: by one of its words or the end of a link."""
    for index, item in enumerate(value if isinstance(value, list) else ()):
        words = item.values() if isinstance(item, dict) else (item,)
        if any(str(word) == name or str(word).rpartition("/")[2] == name for word in words):
            return index
    return None


def format_blame(blame: Blame | None) -> str:
    """``1a2b3c4d5e6f Ada, shop/api.yaml:12`` for people; "" if ``blame`` is None."""
    if blame is None:
        return ""
    if not blame.commit:
        return f"older, {blame.path}"
    return f"{blame.commit[:12]} {blame.author}, {blame.path}" + (f":{blame.line}" if blame.line else "")
