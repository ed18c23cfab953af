"""No coroutine of ours loses a cancellation: what ends a task ends it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.project.tree import ROOT, walk

NAMES = ("wait_for", "CancelledError", "BaseException")


def lost_cancellations(source: str) -> Iterator[str]:
    """The places in ``source`` at which a cancellation can be lost, and how.

    ``asyncio.wait_for`` of Python 3.11 returns the result, and not the cancellation, where both come in one turn.
    """
    for node in walk(ast.parse(source)):
        if isinstance(node, ast.Attribute | ast.Name | ast.alias) and _name(node) == "wait_for":
            yield f"{node.lineno}: wait_for; use asyncio.timeout"
        if isinstance(node, ast.Call) and _name(node.func) == "suppress" and any(map(_cancels, node.args)):
            yield f"{node.lineno}: suppress(CancelledError)"
        if isinstance(node, ast.ExceptHandler) and node.type is not None and _cancels(node.type):
            yield from () if ast.Raise in map(type, node.body) else (f"{node.lineno}: CancelledError without raise",)


def _cancels(node: ast.expr) -> bool:
    names = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(_name(each) in ("CancelledError", "BaseException") for each in names)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.alias):
        return node.name
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_nothing_in_the_project_can_lose_a_cancellation() -> None:
    losses = {}
    for path in sorted((ROOT / "reconciler").rglob("*.py")):
        source = path.read_text()
        if any(name in source for name in NAMES) and (places := list(lost_cancellations(source))):
            losses[str(path.relative_to(ROOT))] = places
    assert not losses


def test_the_patterns_are_found() -> None:
    source = """
import asyncio
from asyncio import wait_for
async def lost():
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await asyncio.wait_for(task, 3)
    try:
        await task
    except (OSError, asyncio.CancelledError):
        pass
"""
    assert sorted(int(each.partition(":")[0]) for each in lost_cancellations(source)) == [3, 5, 6, 9]
