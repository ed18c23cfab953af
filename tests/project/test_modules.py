"""How the package is cut into modules: none too small to be one, no folder too full to read."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import PurePath

import grimp

from tests.project.to_do import FOLDERS_TO_DO, MERGES_TO_DO
from tests.project.tree import ROOT, modules, walk

LINES_FOR_A_MODULE_OF_ITS_OWN = 80
LINES_IN_A_MERGED_MODULE = 300
MODULES_IN_A_FOLDER = 20

PLUG_INS = {
    "reconciler/api/page/": "one module a subject of pages, as small as its route and its query",
    "reconciler/cli/commands/": "one module a command, imported when that command runs",
    "reconciler/manifests/rules/": "one module a group of rules, found by walking the folder",
    "reconciler/model/kinds/": "one module a kind",
}
"""Folder of plug-ins → what each of its modules is; they may be small, and as many as there are."""

EXCEPTIONS = {
    "reconciler/decode/worker.py": "a program of its own, which has to replace classes before it imports the rest",
    "reconciler/engines/host/decisions/rollout.py": "one pure decision a module, tested by itself",
    "reconciler/engines/host/decisions/stateful.py": "one pure decision a module, tested by itself",
    "reconciler/engines/host/runtimes/process/launcher.py": "a program of its own, run by its path",
    "reconciler/engines/kubernetes/reading/final_snapshots.py": "an idle API has imported its importer",
    "reconciler/engines/kubernetes/reading/senders.py": "an idle API has imported its importer",
}
"""Small module with one importer → why it stays a module."""


@cache
def lines(path: str) -> int:
    return len((ROOT / path).read_text().splitlines())


def path_of(module: str) -> str:
    """``reconciler.model`` → ``reconciler/model/__init__.py``."""
    path = module.replace(".", "/")
    return f"{path}.py" if f"{path}.py" in modules() else f"{path}/__init__.py"


@cache
def small() -> dict[str, str]:
    """Small module → its one importer, in the same folder; together they are within the budget of a module."""
    graph = grimp.build_graph("reconciler", cache_dir=None)
    merges = {}
    for module in graph.modules:
        path = path_of(module)
        importers = sorted(graph.find_modules_that_directly_import(module))
        if len(importers) != 1 or path.endswith("__init__.py") or path.startswith(tuple(PLUG_INS)):
            continue
        importer = path_of(importers[0])
        beside = PurePath(importer).parent == PurePath(path).parent
        if (
            beside
            and lines(path) < LINES_FOR_A_MODULE_OF_ITS_OWN
            and lines(path) + lines(importer) <= LINES_IN_A_MERGED_MODULE
        ):
            merges[path] = importer
    return merges


HOST_IN_OTHER_WORDS = {
    "reconciler/api/page/forms.py": "a header",
    "reconciler/cli/local_settings.py": "a setting",
    "reconciler/convert/kamal/convert.py": "a field",
    "reconciler/convert/kubernetes/ingress.py": "a field",
    "reconciler/convert/quadlet/convert.py": "a network",
    "reconciler/engines/host/probes/http.py": "a header",
    "reconciler/engines/host/runtimes/podman/users/rules.py": "where ids are those of this machine",
    "reconciler/engines/kubernetes/rendering/route_objects.py": "a field",
    "reconciler/engines/workload/template.py": "where ids are those of this machine",
    "reconciler/settings/types.py": "where ids are those of this machine",
}
"""Module with the text "host" → what else that is there."""


def test_the_name_of_the_host_engine_is_written_once() -> None:
    offenders = {
        path
        for path, module in modules().items()
        if any(isinstance(node, ast.Constant) and node.value == "host" for node in walk(module))
    }
    home = {"reconciler/engines/host/paths.py"}
    assert offenders - HOST_IN_OTHER_WORDS.keys() == home, "ask the plugin of an engine, not its name"


RUNTIMES = "reconciler.engines.host.runtimes."


def runtime_of(module: str) -> str:
    """The package of the runtime that ``module`` belongs to; "" if it belongs to none."""
    parts = module.removeprefix(RUNTIMES).split(".")
    return parts[0] if module.startswith(RUNTIMES) and len(parts) > 1 else ""


def test_only_the_package_of_a_runtime_knows_the_runtime() -> None:
    graph = grimp.build_graph("reconciler", cache_dir=None)
    own = [module for module in graph.modules if runtime_of(module)]
    assert own, "no runtime is found"
    offenders = {
        f"{importer} → {module}"
        for module in own
        for importer in graph.find_modules_that_directly_import(module)
        if runtime_of(importer) != runtime_of(module)
    }
    assert offenders == set(), "a runtime is chosen by its name in the settings: put what it knows behind Runtime"


def test_a_small_module_with_one_importer_is_part_of_it() -> None:
    assert small().keys() - EXCEPTIONS.keys() == MERGES_TO_DO, "merge it, or lower the list in tests/project/to_do.py"


def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    assert EXCEPTIONS.keys() <= small().keys()
    assert all(EXCEPTIONS.values())


def test_no_folder_has_more_than_twenty_modules() -> None:
    counted = [path for path in modules() if not path.endswith("__init__.py") and not path.startswith(tuple(PLUG_INS))]
    counts = Counter(str(PurePath(path).parent) for path in counted)
    assert {folder: count for folder, count in counts.items() if count > MODULES_IN_A_FOLDER} == FOLDERS_TO_DO
