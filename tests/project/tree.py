"""The project's own source as syntax trees."""

from __future__ import annotations

import ast
import gc
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "reconciler"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def listed(*arguments: str) -> list[str]:
    """Paths that git would commit, or has."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: only git knows which files belong to the project")
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run([*command, *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return [path for path in answer.stdout.split("\0") if path]


@cache
def modules() -> dict[str, ast.Module]:
    """Path relative to the project → syntax tree, for every module of the package."""
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    # These 700,000 objects stay: without it, every full collection of a later test would scan them for 0.5 s.
    gc.freeze()
    return trees


@cache
def walk(node: ast.AST) -> Sequence[ast.AST]:
    """``node`` and all below it, as ``ast.walk`` has them; found once, for many tests ask for the same module."""
    return tuple(ast.walk(node))


@cache
def functions() -> Sequence[tuple[str, Function]]:
    """Every function and method, nested ones too, each with ``path:line name``."""
    return [
        (f"{path}:{node.lineno} {node.name}", node)
        for path, module in modules().items()
        for node in walk(module)
        if isinstance(node, Function)
    ]


@cache
def classes() -> Sequence[tuple[str, ast.ClassDef]]:
    """Every class, nested ones too, each with ``path:line name``."""
    return [
        (f"{path}:{node.lineno} {node.name}", node)
        for path, module in modules().items()
        for node in walk(module)
        if isinstance(node, ast.ClassDef)
    ]


def public(path: str, body: list[ast.stmt]) -> Iterator[tuple[str, Definition]]:
    """What others can use: definitions of a module and of its classes whose names do not begin with an underscore."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield f"{path}:{node.lineno} {node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(path, node.body)


def parameters(function: Function) -> list[str]:
    """Names of the parameters a caller fills."""
    listed = function.args
    every = [*listed.posonlyargs, *listed.args, *listed.kwonlyargs]
    every += [more for more in (listed.vararg, listed.kwarg) if more]
    return [each.arg for each in every if each.arg not in ("self", "cls")]


def length(function: Function) -> int:
    """Lines from ``def`` to the end, the docstring not counted."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    assert docstring.end_lineno is not None
    return lines - (docstring.end_lineno - docstring.lineno + 1)


# Not `with`: it holds something open, and the line goes straight on.
BLOCKS = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.TryStar | ast.Match


def depth(node: ast.AST) -> int:
    """Control flow inside control flow, counted; ``elif`` is as deep as its ``if``, inner functions begin anew."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            continue
        below = depth(child)
        if isinstance(child, BLOCKS) and not is_elif(node, child):
            below += 1
        deepest = max(deepest, below)
    return deepest


def is_elif(parent: ast.AST, child: ast.AST) -> bool:
    """Whether ``child`` is the ``elif`` of the ``if`` that is ``parent``."""
    return (
        isinstance(parent, ast.If)
        and isinstance(child, ast.If)
        and parent.orelse == [child]
        and child.col_offset == parent.col_offset
    )
