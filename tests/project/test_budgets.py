"""Budgets of size and the rules of naming, for every module of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter

import grimp
from importlinter.cli import lint_imports

from tests.project.tree import ROOT, classes, depth, functions, length, modules, parameters, public, walk

LINES_IN_A_MODULE = 500
LINES_IN_THE_BUILT_IN_DATA_PLANE = 300
LINES_IN_A_FUNCTION = 40
PARAMETERS = 6
DEPTH = 3

EXCEPTIONS: dict[str, str] = {
    "reconciler/reasons.py": "one table: every reason and every type of condition, with its texts",
}
"""``path name`` (or ``path`` for a module) → why a budget is broken there."""

NEVER = frozenset({"manager", "handler", "handlers", "helper", "helpers", "util", "utils"})
"""Not part of any name."""
NEVER_ALONE = frozenset({"data", "info", "obj", "process"})
"""Not a name by themselves; ``process`` neither as a verb."""


PROCESSES = "reconciler/engines/host/runtimes/process/"
"""The runtime whose containers are processes: a noun."""


def parts(path: str) -> list[str]:
    """The names that a module's path is made of."""
    return path.removeprefix(PROCESSES).removesuffix(".py").split("/")


def excused(place: str) -> bool:
    """Whether ``place`` (``path:line name``) stands on the list of exceptions."""
    return re.sub(r":\d+", "", place) in EXCEPTIONS


@cache
def words(name: str) -> Sequence[str]:
    """``StepManager`` and ``step_manager`` → ``step``, ``manager``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")


def forbidden(name: str, verb: bool = False) -> bool:
    """Whether ``name`` is without meaning; ``verb``: it names something that acts."""
    parts = words(name)
    return bool(NEVER & set(parts)) or (len(parts) == 1 and parts[0] in NEVER_ALONE) or (verb and parts[0] == "process")


def test_no_module_is_longer_than_500_lines() -> None:
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > LINES_IN_A_MODULE and not excused(path)} == {}


def test_the_built_in_data_plane_stays_small() -> None:
    """It is for the first hour: what needs more belongs to HAProxy."""
    lines = (ROOT / "reconciler/engines/host/dataplane/builtin.py").read_text().splitlines()
    assert len(lines) < LINES_IN_THE_BUILT_IN_DATA_PLANE


def test_no_function_is_longer_than_40_lines() -> None:
    lengths = {place: length(function) for place, function in functions()}
    assert {place: size for place, size in lengths.items() if size > LINES_IN_A_FUNCTION and not excused(place)} == {}


def test_no_function_takes_more_than_six_parameters() -> None:
    taken = {place: len(parameters(function)) for place, function in functions()}
    assert {place: count for place, count in taken.items() if count > PARAMETERS and not excused(place)} == {}


def test_no_function_nests_deeper_than_three() -> None:
    depths = {place: depth(function) for place, function in functions()}
    assert {place: found for place, found in depths.items() if found > DEPTH and not excused(place)} == {}


def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    places = {re.sub(r":\d+", "", place) for place, _ in functions()} | modules().keys()
    assert EXCEPTIONS.keys() <= places
    assert all(EXCEPTIONS.values())


def test_every_module_has_a_docstring_of_one_sentence() -> None:
    first = {path: (ast.get_docstring(module) or "").split("\n")[0] for path, module in modules().items()}
    assert [path for path, line in first.items() if not line.endswith((".", ":", "?"))] == []


def test_whatever_is_public_has_a_docstring() -> None:
    definitions = [found for path, module in modules().items() for found in public(path, module.body)]
    assert [place for place, node in definitions if not ast.get_docstring(node)] == []


def test_no_name_is_without_meaning() -> None:
    bad = [path for path in modules() if any(forbidden(part) for part in parts(path))]
    bad += [f"{place}({name})" for place, function in functions() for name in parameters(function) if forbidden(name)]
    bad += [place for place, function in functions() if forbidden(function.name, verb=True)]
    bad += [place for place, found in classes() if forbidden(found.name)]
    assert bad == []


def test_imports_point_one_way() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True) == 0


PURE = ("convert", "engines/kubernetes/rendering", "logql", "manifests", "model", "planning", "render")
"""Packages that may calculate with dates, and ask no clock."""
CLOCKS = frozenset({"now", "utcnow", "today", "time", "monotonic", "perf_counter"})


def test_pure_modules_read_no_clock() -> None:
    asked = [
        f"{path}:{node.lineno} {node.attr}"
        for path, module in modules().items()
        if path.startswith(tuple(f"reconciler/{name}/" for name in PURE))
        for node in walk(module)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id in ("date", "datetime", "time") and node.attr in CLOCKS
    ]
    assert asked == []


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = grimp.build_graph("reconciler", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()
