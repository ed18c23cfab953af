"""Suggestions for a text that does not fit its field."""

from __future__ import annotations

import random
from typing import Any

import jsonschema_rs
import pytest
import yaml

from reconciler.documents.schema.dialect import compile_pattern
from reconciler.documents.schema.loader import KIND_NAMES, load_schema
from reconciler.documents.schema.suggestions import LONGEST, suggest_fix
from tests.documents.tree import fields
from tests.support.cases import CASES
from tests.support.mutations import LETTERS, SCALARS

MEANT = yaml.safe_load((CASES / "schemas/meant.yaml").read_bytes())


def place(about: str, wanted: str) -> dict[str, Any]:
    """The field at ``wanted`` of the schema ``about``."""
    return next(field for path, field in fields(load_schema(about)) if path == wanted)


@pytest.mark.parametrize("case", MEANT, ids=lambda case: case["place"].rpartition(".")[2])
def test_a_slip_of_the_pen_is_put_right(case: dict[str, Any]) -> None:
    field = place(case["about"], case["place"])
    assert {text: suggest_fix(text, field) for text in case["meant"]} == case["meant"]


@pytest.mark.parametrize("name", KIND_NAMES)
def test_whatever_is_proposed_fits(name: str) -> None:
    chance = random.Random(name)
    written = [str(value) for value in SCALARS] + ["".join(chance.choices(LETTERS, k=9)) for _ in range(40)]
    for pattern, field in {
        field["pattern"]: field for _, field in fields(load_schema(name)) if "pattern" in field
    }.items():
        check = jsonschema_rs.Draft202012Validator(field)
        for text in written:
            if not compile_pattern(pattern).search(text):
                meant = suggest_fix(text, field)
                assert not meant or check.is_valid(meant), (pattern, text, meant)


def test_a_long_text_is_no_slip_of_the_pen() -> None:
    field = place("workload", ".spec.containers[].name")
    assert suggest_fix("A" * LONGEST, field) == "a" * LONGEST
    assert suggest_fix("A" * (LONGEST + 1), field) == ""
