"""Nothing of ours runs between fork and exec: the daemon has threads, and a lock of one of them would stay locked."""

from __future__ import annotations

import ast

from tests.project.tree import modules, walk

UNSAFE = {"preexec_fn", "fork", "forkpty"}


def test_no_python_runs_in_a_forked_child() -> None:
    forks = []
    for path, module in modules().items():
        for node in walk(module):
            name = node.arg if isinstance(node, ast.keyword) else node.attr if isinstance(node, ast.Attribute) else ""
            if name in UNSAFE:
                forks.append(f"{path}:{node.lineno} {name}")  # type: ignore[attr-defined]
    assert forks == []
