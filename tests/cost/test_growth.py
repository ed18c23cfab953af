"""Twice the input costs twice as much: every list and mapping of every reader, in CPU time and in memory.

Each size is small at first, and memory is measured where one thing is named again and again. What grows by more than it
should is measured again at twice the size, where a quadratic part is larger and noise is not; it fails only if it still
does. The long form begins at larger sizes, and measures all memory.
"""

from __future__ import annotations

import pytest

from reconciler.documents.schema.loader import KIND_NAMES
from tests.cost.growth import Shape, growth_of
from tests.cost.inputs.compose import COMPOSE
from tests.cost.inputs.deployments import DEPLOYMENTS
from tests.cost.inputs.encrypted import ENCRYPTED
from tests.cost.inputs.exports import EXPORTS
from tests.cost.inputs.kubernetes import KUBERNETES
from tests.cost.inputs.manifests import manifest_shapes
from tests.cost.inputs.texts import DOCUMENTS, ENV_FILES, IGNORED, QUERIES, setting_shapes

SHAPES: dict[str, dict[str, Shape]] = {
    "compose": COMPOSE,
    "deployments": DEPLOYMENTS,
    "env files": ENV_FILES,
    "kubernetes": KUBERNETES,
    "exports": EXPORTS,
    "encrypted": ENCRYPTED,
    "queries": QUERIES,
    "ignored": IGNORED,
    "documents": DOCUMENTS,
}
MANIFESTS = {kind: manifest_shapes(kind) for kind in KIND_NAMES}
SHARE = 0.2
"""The part of the size at which the short form begins."""
LONG_KINDS = frozenset({"mk8s", "org"})
"""Kinds of which no engine or rule reads more than a few fields, and which have most of them."""
SMALL = sorted(set(KIND_NAMES) - LONG_KINDS)
LONG_READERS = frozenset({"compose", "kubernetes"})
"""Readers of commands that people run by hand, which take half of the time of all."""
SHORT_READERS = [reader for reader in SHAPES if reader not in LONG_READERS]


def steep(shapes: dict[str, Shape], share: float) -> dict[str, object]:
    """Those of ``shapes`` that grow faster than their input, with their growth."""
    growths = {name: growth_of(shape, share) for name, shape in shapes.items()}
    return {name: growth for name, growth in growths.items() if not growth.is_linear}


@pytest.mark.parametrize("reader", SHORT_READERS)
def test_what_a_reader_costs_grows_with_its_input(reader: str) -> None:
    assert steep(SHAPES[reader], SHARE) == {}


@pytest.mark.parametrize("kind", SMALL)
def test_what_a_manifest_costs_grows_with_each_list_and_mapping(kind: str) -> None:
    assert steep(MANIFESTS[kind], SHARE) == {}


@pytest.mark.slow
@pytest.mark.parametrize("reader", SHAPES)
def test_what_a_reader_costs_grows_with_its_input_at_larger_sizes(reader: str) -> None:
    assert steep(SHAPES[reader], 1.0) == {}


@pytest.mark.slow
def test_what_the_settings_cost_grows_with_each_list_and_mapping() -> None:
    assert steep(setting_shapes(), 1.0) == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KIND_NAMES)
def test_what_a_manifest_costs_grows_with_each_list_and_mapping_at_larger_sizes(kind: str) -> None:
    assert steep(MANIFESTS[kind], 1.0) == {}


def quadratic(numbers: range) -> int:
    """Work in the square of its input, most of it in C."""
    distinct: list[int] = []
    for number in numbers:
        if number not in distinct:
            distinct.append(number)
    return len(distinct)


def wasteful(numbers: range) -> int:
    """Memory in the square of its input, and little time."""
    return len([bytearray(len(numbers) * 10) for _ in numbers])


@pytest.mark.slow
def test_the_measure_finds_what_is_quadratic_and_nothing_else() -> None:
    linear = Shape(range, lambda numbers: sum(sorted(numbers, reverse=True)), 20_000)
    assert steep({"linear": linear}, 1.0) == {}
    shapes = {"time": Shape(range, quadratic, 800), "memory": Shape(range, wasteful, 300)}
    assert [*steep(shapes, 1.0)] == ["time", "memory"]
