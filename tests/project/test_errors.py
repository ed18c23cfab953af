"""Expected errors form one tree, drawn in reconciler/errors.py; exceptions for control flow are private."""

from __future__ import annotations

import ast
import builtins
import re
from typing import NamedTuple

import pytest

import reconciler.errors
from tests.project.tree import modules, walk

HOME = "reconciler/errors.py"
ROOT_ERROR = "ReconcilerError"
ANSWER = "Problem"
"""An answer of the HTTP API: no failure of the program, and in no tree."""

_DRAWN = re.compile(r"(?P<indent>(?:│   |    )*)(?:├── |└── )(?P<name>\w+) +(?P<text>.*)")
_FILE = re.compile(r"\((\w[\w/]*\.py)\)$")

BUILT_IN = frozenset(
    name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, BaseException)
)


class DrawnClass(NamedTuple):
    """A class of the tree: its parent, and the module that defines it."""

    parent: str
    path: str


class DefinedClass(NamedTuple):
    """A definition of an exception class: its bases, and the module that holds it."""

    bases: tuple[str, ...]
    path: str


def drawn(text: str) -> dict[str, DrawnClass]:
    """Class → its parent and its module, as the tree in ``text`` shows them."""
    branch = [ROOT_ERROR]
    tree = {ROOT_ERROR: DrawnClass("Exception", HOME)}
    for line in text.splitlines():
        if match := _DRAWN.match(line):
            depth = len(match["indent"]) // 4
            branch[depth + 1 :] = [match["name"]]
            file = _FILE.search(match["text"])
            tree[match["name"]] = DrawnClass(branch[depth], f"reconciler/{file[1]}" if file else HOME)
    return tree


def defined(trees: dict[str, ast.Module]) -> dict[str, DefinedClass]:
    """Every exception class that ``trees`` define, by name."""
    classes: dict[str, DefinedClass] = {}
    for path, module in trees.items():
        for node in walk(module):
            if isinstance(node, ast.ClassDef):
                bases = tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases)
                classes[node.name] = DefinedClass(bases, path)
    related: set[str] = set(BUILT_IN)
    while new := {name for name, each in classes.items() if related & set(each.bases)} - related:
        related |= new
    return {name: classes[name] for name in related - BUILT_IN}


def families(tree: dict[str, DrawnClass]) -> dict[str, str]:
    """Class → the class below the root that it belongs to."""

    def family(name: str) -> str:
        parent = tree[name].parent
        return name if parent in (ROOT_ERROR, "Exception") else family(parent)

    return {name: family(name) for name in tree}


def caught(handler: ast.ExceptHandler) -> list[str]:
    """Names of the classes that ``handler`` lists."""
    members = handler.type.elts if isinstance(handler.type, ast.Tuple) else []
    return [ast.unparse(each).rpartition(".")[2] for each in members]


def test_every_error_is_drawn_at_its_place() -> None:
    public = {
        name: defined_class
        for name, defined_class in defined(modules()).items()
        if not name.startswith("_") and ANSWER not in (name, *defined_class.bases)
    }
    tree = drawn(reconciler.errors.__doc__ or "")
    assert {
        name: DrawnClass(defined_class.bases[0], defined_class.path) for name, defined_class in public.items()
    } == tree


def test_an_error_has_one_parent() -> None:
    assert {name: each.bases for name, each in defined(modules()).items() if len(each.bases) > 1} == {}


def test_exceptions_for_control_flow_stay_in_their_module() -> None:
    private = {name: each.path for name, each in defined(modules()).items() if name.startswith("_")}
    used = {
        (path, alias.name)
        for path, module in modules().items()
        for node in walk(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert [place for place in used if place[1] in private] == []


def test_one_family_is_caught_by_its_name() -> None:
    """Where a handler lists two classes of one family, the family may grow and the handler not."""
    family = families(drawn(reconciler.errors.__doc__ or ""))
    wrong = []
    for path, module in modules().items():
        for node in walk(module):
            if isinstance(node, ast.ExceptHandler):
                of_family = [family[name] for name in caught(node) if name in family]
                wrong += [f"{path}:{node.lineno}"] if len(of_family) != len(set(of_family)) else []
    assert wrong == []


def test_a_tree_is_read_as_it_is_drawn() -> None:
    text = """
    Root
├── A        first
│   ├── B      second (here/b.py)
│   │   └── C    third
│   └── D      fourth (of these)
└── E        fifth
    └── F      sixth
"""
    assert drawn(text) == {
        ROOT_ERROR: DrawnClass("Exception", HOME),
        "A": DrawnClass(ROOT_ERROR, HOME),
        "B": DrawnClass("A", "reconciler/here/b.py"),
        "C": DrawnClass("B", HOME),
        "D": DrawnClass("A", HOME),
        "E": DrawnClass(ROOT_ERROR, HOME),
        "F": DrawnClass("E", HOME),
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class A(ValueError): pass\nclass B(x.A): pass", {"A", "B"}),
        ("class A(str): pass\nclass B(A): pass", set()),
        ("class _A(BaseException): pass", {"_A"}),
    ],
)
def test_exception_classes_are_found(text: str, found: set[str]) -> None:
    assert defined({"reconciler/x.py": ast.parse(text)}).keys() == found
