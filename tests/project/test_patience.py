"""Limits of tests: what must only not hang has a minute, since CI may be several times slower than this machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.project.tree import ROOT

LEAST = 60.0
"""Seconds that anything may take before a test gives up on it."""
NOTHING = 2.0
"""So many seconds or fewer are a wait for what shall not come."""
WAITS = {"communicate", "run", "check_output", "check_call", "urlopen", "create_connection"}
WAITS |= {"timeout", "wait", "until", "wait_for", "eventually"}
WORDS = {"timeout", "patience", "seconds"}
OTHERS = {
    "tests/bench/large_gvc.py": "a value in a manifest",
    "tests/test_tasks.py": "a program that would wait for 60 s",
    "tests/systemd/test_haproxy_unit.py": "a program that is asked again",
    "tests/engines/host/runtimes/podman/test_real.py": "a request that is sent again",
}
"""Files whose limits are of another kind → which."""


def test_nothing_has_less_than_a_minute() -> None:
    short = [
        f"{path.relative_to(ROOT)}:{line}: {seconds:g} s"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if str(path.relative_to(ROOT)) not in OTHERS
        for line, seconds in list_limits(ast.parse(path.read_text()))
        if NOTHING < seconds < LEAST
    ]
    assert short == [], "wait for a condition, with a limit of a minute"


def list_limits(module: ast.Module) -> Iterator[tuple[int, float]]:
    """The lines with limits, and their seconds."""
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in WAITS:
                for keyword in node.keywords:
                    if keyword.arg in WORDS:
                        yield from _read_seconds(keyword.value)
                if name == "timeout":
                    for argument in node.args:
                        yield from _read_seconds(argument)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.strip("_") == "PATIENCE":
                yield from _read_seconds(node.value)


def _read_seconds(value: ast.expr) -> Iterator[tuple[int, float]]:
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
        yield value.lineno, float(value.value)


def test_limits_are_found() -> None:
    text = "PATIENCE = 5\nasync def f(p):\n async with asyncio.timeout(7.5):\n  p.communicate(timeout=9)\n"
    assert [seconds for _, seconds in list_limits(ast.parse(text))] == [5.0, 7.5, 9.0]
    assert Path(ROOT / "tests/support/waiting.py").is_file()
