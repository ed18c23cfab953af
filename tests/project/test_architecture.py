"""The page on architecture names every room in the order of the import contract, and no file or type that is gone."""

from __future__ import annotations

import re
import tomllib

from tests.project.tree import PACKAGE, ROOT, classes, functions

PAGE = ROOT / "docs" / "architecture.md"
OTHER_TYPES = {"README", "CONTRIBUTING"}

_ROOM = re.compile(r"(\w+) +([┐│┘]?) *(\S.*)")


def text() -> str:
    return PAGE.read_text()


def listed() -> list[set[str]]:
    """The rooms of the page from top to bottom; those joined by a bracket together."""
    (block,) = re.findall(r"^```text rooms\n(.*?)^```$", text(), re.M | re.S)
    layers: list[set[str]] = []
    joined = False
    for line in block.splitlines():
        found = _ROOM.fullmatch(line)
        assert found is not None, f"not a line of a room: {line}"
        name, bracket, _ = found.groups()
        assert joined == (bracket in ("│", "┘") and bracket != ""), f"a bracket is torn at {name}"
        if joined:
            layers[-1].add(name)
        else:
            layers.append({name})
        joined = bracket in ("┐", "│") and bracket != ""
    return layers


def contract() -> list[set[str]]:
    """The layers of the import contract, without the name of the package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (each["layers"] for each in settings["contracts"] if each["type"] == "layers")
    return [{name.strip().removeprefix("reconciler.") for name in layer.split("|")} for layer in layers]


def rooms() -> set[str]:
    """Every package and module at the top of ``reconciler``."""
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    return packages | {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}


def test_the_page_has_the_layers_of_the_import_contract_in_its_order() -> None:
    assert listed() == contract(), (
        "bring `text rooms` in docs/architecture.md and the layers of pyproject.toml together"
    )


def test_every_room_of_the_package_is_in_the_contract_and_on_the_page() -> None:
    assert set().union(*contract()) == rooms()
    assert set().union(*listed()) == rooms()


def test_every_path_on_the_page_exists() -> None:
    paths = {path for path in re.findall(r"`([\w./]+/[\w./]*)`", text()) if "://" not in path}
    assert "planning/planner.py" in paths
    beside = set(re.findall(r"`(\w+(?:\.py|/))`", text()))
    homes = (PACKAGE, ROOT, PACKAGE / "engines" / "host", PACKAGE / "engines" / "kubernetes")
    missing = {path for path in paths | beside if not any((home / path).exists() for home in homes)}
    assert missing == set()


def test_every_type_and_function_on_the_page_exists() -> None:
    defined = {node.name for _, node in classes()} | {node.name for _, node in functions()} | rooms()
    named = set(re.findall(r"`([A-Za-z]\w+)`", text())) - OTHER_TYPES
    assert "WorkloadController" in named
    assert named - defined - {"reconciler", "host", "kubernetes", "recorded", "platform"} == set()


def test_every_path_that_contributors_are_sent_to_exists() -> None:
    paths = set(re.findall(r"`([\w.-]+/[\w./-]*)`", (ROOT / "CONTRIBUTING.md").read_text()))
    named = {path for path in paths if not re.search(r"\b(KIND|NAME|ID)\b", path)}
    assert "reconciler/model/kinds/table.py" in named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
