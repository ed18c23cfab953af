"""Nothing of ours runs between fork and exec: the daemon has threads, and a lock of one of them would stay locked."""

from __future__ import annotations

import ast

from tests.project.tree import ROOT, modules

UNSAFE = {"preexec_fn", "fork", "forkpty"}


def test_no_python_runs_in_a_forked_child() -> None:
    found = []
    for path in modules():
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            name = node.arg if isinstance(node, ast.keyword) else node.attr if isinstance(node, ast.Attribute) else ""
            if name in UNSAFE:
                found.append(f"{path}:{node.lineno} {name}")  # type: ignore[attr-defined]
    assert found == []
