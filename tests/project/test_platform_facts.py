"""Facts of the platform are in one module: no other one writes a scheme, a reserved name or a blocked port again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.documents.schema.loader import load_schema
from reconciler.model import platform
from tests.project.tree import modules, walk

HOME = "reconciler/model/platform.py"

WHOLE = {
    *platform.BUILT_IN_RESOURCES,
    *platform.BUILT_IN_TAGS,
    *platform.RESERVED_VARIABLES,
    *platform.RESERVED_CONTAINERS,
    *platform.RESERVED_CONTAINER_PREFIXES,
    *platform.STORE_URIS,
    platform.SCRATCH_URI,
    platform.TAG_PREFIX,
    platform.VARIABLE_PREFIX,
    platform.OWN_PROVIDER,
}
"""Texts that only the home of these facts has."""

NUMBERS = re.compile(r"\d+")


def docstrings(module: ast.Module) -> set[int]:
    """Ids of the texts that stand alone in ``module``: they are prose."""
    return {id(node.value) for node in walk(module) if isinstance(node, ast.Expr)}


def repeated(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each constant of ``module`` that states a fact of the platform."""
    prose = docstrings(module)
    for node in walk(module):
        if isinstance(node, ast.Set | ast.List | ast.Tuple):
            numbers = {each.value for each in node.elts if isinstance(each, ast.Constant)}
            if len(numbers & platform.BLOCKED_PORTS) > 1:
                yield node.lineno, "blocked ports"
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in prose:
            continue
        ports = {int(number) for number in NUMBERS.findall(node.value[:1000]) if len(number) < 6}
        if platform.PLATFORM_URI in node.value or node.value in WHOLE or len(ports & platform.BLOCKED_PORTS) > 1:
            yield node.lineno, node.value


def test_facts_of_the_platform_are_written_once() -> None:
    again = [
        f"{path}:{line} {text}" for path, module in modules().items() if path != HOME for line, text in repeated(module)
    ]
    assert again == [], f"import these from {HOME}"


@pytest.mark.parametrize(
    "text",
    [
        'x = "platform://secret/"',
        'f"platform://volumeset/{name}"',
        "x = {8012, 8022}",
        'f("use 9090 or 9091")',
        'x = "platform/protected"',
        'x = ("K_SERVICE",)',
    ],
)
def test_a_repeated_fact_is_found(text: str) -> None:
    assert len(list(repeated(ast.parse(text)))) == 1


def enums(node: Any) -> Iterator[frozenset[Any]]:
    """All lists of values below ``node`` of a schema."""
    if isinstance(node, dict) and isinstance(node.get("enum"), list):
        yield frozenset(node["enum"])
    for member in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from enums(member)


def test_the_schemas_have_the_same_facts() -> None:
    written = set(enums(load_schema("workload")))
    facts = (platform.BLOCKED_PORTS, frozenset(platform.RESERVED_CONTAINERS), frozenset(platform.RESERVED_VARIABLES))
    assert [fact for fact in facts if fact not in written] == []
    assert platform.LOCATION_PROVIDERS in set(enums(load_schema("location")))
