"""A change as JSON values: where it is, the difference in its files, and what a run does with it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from reconciler.changes.edits import has_secrets
from reconciler.changes.write import CheckedChange
from reconciler.planning.plan import Plan
from reconciler.render.plan.json import build_plan_document as plan_document


def change_document(change: CheckedChange, plan: Plan, show: Callable[[str], str], *, dry: bool) -> dict[str, Any]:
    """``change`` with ``plan``, what its reader may see of that; ``show`` makes of a file what the reader may see.

    There is no difference of a file with secrets.
    """
    paths = sorted(change.after)
    return {
        "branch": change.branch,
        "review": change.review or None,
        "commit": None if dry else change.commit.id,
        "files": paths,
        "diff": "".join(_compare_file(path, change, show) for path in paths),
        "plan": plan_document(plan),
    }


def _compare_file(path: str, change: CheckedChange, show: Callable[[str], str]) -> str:
    """The difference in a file."""
    texts = [files.get(path) or "" for files in (change.before, change.after)]
    if any(map(has_secrets, texts)):
        return ""
    before, after = (show(text).splitlines(keepends=True) for text in texts)
    lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
