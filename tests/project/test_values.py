"""Values: what changes is a new value, made of named fields.

No module changes the attributes of an object that another one made. Records are msgspec structs or named tuples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.project.tree import Function, functions, modules, walk

EXCEPTIONS = {
    "reconciler/cli/output/help.py": "click takes the class of contexts from the command",
    "reconciler/convert/kubernetes/ingress.py": "private entries for each host, filled while rules are read",
    "reconciler/documents/aliases.py": "a stack of private frames: a new one for each event costs a tenth of reading",
    "reconciler/documents/event_positions.py": "a stack of private frames: a new one for each event costs time",
    "reconciler/engines/host/logs/hole_punch.py": "ctypes declares a function so",
    "reconciler/engines/host/runtimes/process/kill.py": "private entries of those who wait for the end of a process",
    "reconciler/engines/host/runtimes/process/spawn.py": "Popen must not wait for a process that another one reaps",
    "reconciler/manifests/assembly.py": "its own change set, counted up before it is returned",
    "reconciler/printable.py": "a stream of the standard library writes through a function of ours",
    "reconciler/reasons.py": "members of an enum have more than their value",
    "reconciler/sops/layout.py": "a stack of private frames while a file is read",
}
"""Module → why it changes attributes through another name than ``self``; none where objects pass between rooms."""

POSITIONAL = {
    "reconciler/cli/__init__.py resolve_command": "a method that click calls and declares",
    "reconciler/platform_cli/command_line.py resolve_command": "a method that click calls and declares",
    "reconciler/records/tables/applied.py AppliedRow": "100,000 rows as SQLite makes them: named, 22 ms more a start",
    "reconciler/records/tables/applied.py VersionRow": "100,000 rows as SQLite makes them",
    "reconciler/records/tables/desired.py _decode": "links as they are stored: named, a third more time to decode",
}
"""Module and name → why a tuple of more than two values has no names there."""

MAPPINGS = frozenset({"dict", "defaultdict", "Mapping", "Counter", "set", "frozenset", "Set"})
"""Containers whose members or keys are compared as a whole and not taken apart: those may be tuples."""

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
    for node in walk(function):
        pairs = [(target, node.value) for target in node.targets] if isinstance(node, ast.Assign) else []
        pairs += [(node.target, node.value)] if isinstance(node, ast.AnnAssign) else []
        for target, value in pairs:
            if isinstance(target, ast.Name):
                assigned.setdefault(target.id, []).append(value)
    return {name for name, values in assigned.items() if all(map(is_new, values))}


def changed_attributes(function: Function) -> Iterator[str]:
    """Attributes that ``function`` sets or deletes, and whose objects it did not make."""
    own = {"self", "cls"} | new_objects(function)
    for node in walk(function):
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
            continue
        if not isinstance(node.value, ast.Name) or node.value.id not in own:
            yield ast.unparse(node)


def test_attributes_are_changed_by_their_own_object_only() -> None:
    offenders = {
        f"{function_name}: {changed}"
        for function_name, function in functions()
        for changed in changed_attributes(function)
        if function_name.partition(":")[0] not in EXCEPTIONS
    }
    assert offenders == set(), "return a new value instead, and let the owner of the object replace it"


def test_exceptions_are_needed_and_none_is_in_the_line() -> None:
    changing = {place.partition(":")[0] for place, function in functions() if any(changed_attributes(function))}
    assert EXCEPTIONS.keys() <= changing
    assert not any(path.startswith(VALUES_ONLY) for path in EXCEPTIONS)


def is_positional(node: ast.AST) -> bool:
    """Whether ``node`` is the type of a tuple with more than two values."""
    return (
        isinstance(node, ast.Subscript)
        and ast.unparse(node.value) == "tuple"
        and isinstance(node.slice, ast.Tuple)
        and len(node.slice.elts) > 2
    )


def compared(module: ast.Module) -> set[ast.AST]:
    """Nodes of ``module`` that are types of keys: of a mapping, a set, or what a function returns that sorts."""
    sorting = {
        each.value.id
        for each in walk(module)
        if isinstance(each, ast.keyword) and each.arg == "key" and isinstance(each.value, ast.Name)
    }
    nodes: set[ast.AST] = set()
    for node in walk(module):
        if isinstance(node, Function) and node.name in sorting and node.returns:
            nodes.add(node.returns)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in MAPPINGS:
            nodes.add(node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice)
    return nodes


def positional(module: ast.Module) -> Iterator[str]:
    """Names in ``module`` whose type has a tuple of more than two values: functions, fields, variables, aliases."""
    keys = compared(module)

    def below(node: ast.AST, name: str) -> Iterator[str]:
        if isinstance(node, Function | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.AnnAssign):
            name = ast.unparse(node.target)
        elif isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
        if is_positional(node) and node not in keys:
            yield name
        for child in ast.iter_child_nodes(node):
            yield from below(child, name)

    yield from below(module, "")


def test_a_tuple_of_more_than_two_values_has_names() -> None:
    found = {f"{path} {name}" for path, module in modules().items() for name in positional(module)}
    assert found - POSITIONAL.keys() == set(), "make it a NamedTuple, or a msgspec.Struct where it is public"
    assert POSITIONAL.keys() <= found, "remove the exceptions that are no longer needed"


def test_records_are_structs_or_named_tuples() -> None:
    others = {"dataclass", "dataclasses", "TypedDict", "namedtuple", "attr", "attrs", "SimpleNamespace"}
    offenders = [
        f"{path}:{node.lineno}"
        for path, module in modules().items()
        for node in walk(module)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and others & {getattr(node, "module", None), *(alias.name for alias in node.names)}
    ]
    assert offenders == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f() -> tuple[int, str, bool]: ...", ["f"]),
        ("def f() -> Iterator[tuple[int, str, bool] | None]: ...", ["f"]),
        ("def f(rows: list[tuple[int, str, bool]]): ...", ["f"]),
        ("class A:\n  rows: list[tuple[int, int, int]]", ["rows"]),
        ("Row = tuple[int, int, int]", ["Row"]),
        ("def f() -> tuple[int, str]: ...", []),
        ("def f() -> tuple[int, ...]: ...", []),
        ("known: dict[tuple[int, int, int], str] = {}", []),
        ("known: dict[str, tuple[int, int, int]] = {}", ["known"]),
        ("seen: set[tuple[int, int, int]] = set()", []),
        ("def f() -> tuple[int, int, int]: ...\nsorted(x, key=f)", []),
    ],
)
def test_positional_values_are_found(text: str, found: list[str]) -> None:
    assert list(positional(ast.parse(text))) == found


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_changed_attributes_are_found(text: str, expected: list[str]) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert list(changed_attributes(function)) == expected
