"""No module changes the attributes of an object that another one made: what changes is a new value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.project.tree import Function, functions

EXCEPTIONS = {
    "reconciler/convert/kubernetes/ingress.py": "private entries for each host, filled while rules are read",
    "reconciler/documents/aliases.py": "a stack of private frames: a new one for each event costs a tenth of reading",
    "reconciler/documents/locator.py": "a stack of private frames: a new one for each event costs time",
    "reconciler/engines/host/logs/hole_punch.py": "ctypes declares a function so",
    "reconciler/engines/host/runtimes/process/kill.py": "private entries of those who wait for the end of a process",
    "reconciler/engines/host/runtimes/process/spawn.py": "Popen must not wait for a process that another one reaps",
    "reconciler/manifests/assembly.py": "its own change set, counted up before it is returned",
    "reconciler/printable.py": "a stream of the standard library writes through a function of ours",
    "reconciler/reasons.py": "members of an enum have more than their value",
    "reconciler/sops/layout.py": "a stack of private frames while a file is read",
}
"""Module → why it changes attributes through another name than ``self``; none where objects pass between rooms."""

VALUES_ONLY = ("reconciler/pipeline/", "reconciler/daemon/", "reconciler/status/")
"""The line and what drives it: no exception is allowed there."""


def is_new(value: ast.expr | None) -> bool:
    """Whether ``value`` makes an object: a call of a class."""
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call):
        return False
    made = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    name = made.attr if isinstance(made, ast.Attribute) else made.id if isinstance(made, ast.Name) else ""
    return name == "cls" or name.lstrip("_")[:1].isupper()


def new_objects(function: Function) -> set[str]:
    """Names of the locals of ``function`` that hold objects which it made itself."""
    assigned: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(function):
        pairs = [(target, node.value) for target in node.targets] if isinstance(node, ast.Assign) else []
        pairs += [(node.target, node.value)] if isinstance(node, ast.AnnAssign) else []
        for target, value in pairs:
            if isinstance(target, ast.Name):
                assigned.setdefault(target.id, []).append(value)
    return {name for name, values in assigned.items() if all(map(is_new, values))}


def changed_attributes(function: Function) -> Iterator[str]:
    """Attributes that ``function`` sets or deletes, and whose objects it did not make."""
    own = {"self", "cls"} | new_objects(function)
    for node in ast.walk(function):
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
            continue
        if not isinstance(node.value, ast.Name) or node.value.id not in own:
            yield ast.unparse(node)


def test_attributes_are_changed_by_their_own_object_only() -> None:
    found = {
        f"{place}: {changed}"
        for place, function in functions()
        for changed in changed_attributes(function)
        if place.partition(":")[0] not in EXCEPTIONS
    }
    assert found == set(), "return a new value instead, and let the owner of the object replace it"


def test_exceptions_are_needed_and_none_is_in_the_line() -> None:
    changing = {place.partition(":")[0] for place, function in functions() if any(changed_attributes(function))}
    assert EXCEPTIONS.keys() <= changing
    assert not any(path.startswith(VALUES_ONLY) for path in EXCEPTIONS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(self): self.a = 1", []),
        ("def f(other): other.a = 1", ["other.a"]),
        ("def f(self): self.line.state = 1", ["self.line.state"]),
        ("def f(other): other.count += 1", ["other.count"]),
        ("def f(other): del other.a", ["other.a"]),
        ("def f(other): other.a, b = 1, 2", ["other.a"]),
        ("def f(all):\n  for each in all:\n    each.a = 1", ["each.a"]),
        ("def f():\n  new = Thing()\n  new.a = 1", []),
        ("def f(known):\n  new = Thing()\n  new = known\n  new.a = 1", ["new.a"]),
        ("def f(known):\n  new = known.get('a')\n  new.a = 1", ["new.a"]),
    ],
)
def test_what_counts_as_a_change(text: str, found: list[str]) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert list(changed_attributes(function)) == found
