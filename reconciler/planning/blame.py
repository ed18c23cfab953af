"""Who asked for a change: what a commit did to a resource, and where in its file a field is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from reconciler.model.finding import Pointer
from reconciler.planning.diff import diff
from reconciler.planning.plan import Action, Plan, Step, StepId

WHOLE = ""
"""Stands for the path where a resource came or went as a whole."""

_SEGMENT = re.compile(r'\["(.*?)"\]|\[([^\]]*)\]|\.?([^.\[]+)')

_INDEX = re.compile(r"(?<!\.ports)\[\d+\]")
"""The index of a list entry, which another commit may have moved; ports alone are named by numbers."""


class Blame(msgspec.Struct, frozen=True):
    """The commit that asked for a change, and the line that says it as that commit has the file.

    ``commit`` is empty where it is older than was looked; ``line`` is 0 where the file has no such line any more.
    """

    commit: str
    author: str
    path: str
    line: int


Blames: TypeAlias = Mapping[tuple[StepId, str], Blame]
"""By step and the path of a changed field (``WHOLE`` for what is made or deleted)."""


def blamable_paths(step: Step) -> list[str]:
    """The paths of ``step`` that somebody asked for in Git."""
    if step.heals:
        return []
    if step.action in (Action.CREATE, Action.DELETE):
        return [WHOLE]
    return [change.path for change in step.changes]


def count(plan: Plan) -> int:
    """How many changes there are to blame somebody for, those that are alike at several locations counted once."""
    return len({(step.key, path) for step in plan.steps for path in blamable_paths(step)})


def changed_paths(step: Step, before: bytes | None, after: bytes | None, paths: Iterable[str]) -> list[str]:
    """Those of ``paths`` that differ between two bodies (JSON; None: it is not there) of what ``step`` is about."""
    if before is None or after is None:
        return list(paths) if (before is None) != (after is None) else []
    changed = [change.path for change in diff(step.key.kind, before, after, step.location)]
    return [path for path in paths if path and any(_overlap(path, other) for other in changed)]


def _overlap(one: str, other: str) -> bool:
    short, long = sorted((_INDEX.sub("[]", one), _INDEX.sub("[]", other)), key=len)
    return long == short or (long.startswith(short) and long[len(short)] in ".[")


def pointer_of(path: str, value: Any) -> Pointer:
    """Where the field ``path`` of a plan is in the document ``value`` as it is written, as far as it is there."""
    steps: list[str | int] = []
    for quoted, item, name in _SEGMENT.findall(path):
        step: str | int | None = quoted or name
        if not step:
            step = _position(item, value)
        there = step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int)
        if step is None or not there:
            break
        value = value[step]
        steps.append(step)
    return tuple(steps)


def _position(name: str, value: Any) -> int | None:
    """Which item of the list ``value`` plans call ``name``: one that says so itself, by a word or the end of a link."""
    for index, item in enumerate(value if isinstance(value, list) else ()):
        words = item.values() if isinstance(item, dict) else (item,)
        if any(str(word) == name or str(word).rpartition("/")[2] == name for word in words):
            return index
    return None


def shown(blame: Blame | None) -> str:
    """``1a2b3c4d5e6f Ada, shop/api.yaml:12`` for people; nothing where nobody is known."""
    if blame is None:
        return ""
    if not blame.commit:
        return f"older, {blame.path}"
    return f"{blame.commit[:12]} {blame.author}, {blame.path}" + (f":{blame.line}" if blame.line else "")
