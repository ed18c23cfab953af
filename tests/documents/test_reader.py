"""The reader against files that a user could have written: tests/cases/reading."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.documents.reader import parse_documents
from reconciler.documents.rules import RULES
from reconciler.documents.types import unreadable_paths
from reconciler.model.finding import Fault

FOLDER = Path(__file__).parent.parent / "cases" / "reading"


def each_case() -> Iterator[Any]:
    for path in sorted(FOLDER.glob("*.yaml")):
        for case in yaml.safe_load(path.read_bytes()):
            yield pytest.param(case, id=f"{path.stem}: {case['name']}")


CASES = list(each_case())


def as_json(value: Any) -> str:
    """Unlike ``==`` this distinguishes 1, 1.0 and true."""
    return json.dumps(value, sort_keys=True)


def words(fault: Fault) -> str:
    return f"{fault.message} ({fault.suggestion})"


@pytest.mark.parametrize("case", CASES)
def test_a_file_gives_its_values_and_all_its_faults(case: dict[str, Any]) -> None:
    reading = parse_documents(case["input"].encode(), is_json=case.get("json", False))

    assert [f"{fault.rule} {fault.line}:{fault.column}" for fault in reading.faults] == case.get("faults", [])
    assert as_json([document.value for document in reading.documents]) == as_json(case.get("values", []))
    if "places" in case:
        assert [f"{document.index} {document.line}" for document in reading.documents] == case["places"]
    if "message" in case:
        assert case["message"] in words(reading.faults[0])
    if "silent" in case:
        assert not any(case["silent"] in words(fault) for fault in reading.faults)


def test_every_rule_is_described_and_every_described_rule_has_a_case() -> None:
    seen = {fault.rule for param in CASES for fault in parse_documents(param.values[0]["input"].encode()).faults}

    rules = {rule.id for rule in RULES}
    assert seen <= rules
    assert rules - seen == {
        "encoding",
        "too-deep",
        "too-large",
        "too-many-aliases",
        "too-many-directives",
        "too-many-documents",
        "too-many-nodes",
    }, "these need bytes or sizes that a case cannot show: test_reader_bounds.py"


def test_every_fault_has_a_suggestion() -> None:
    faults = [fault for param in CASES for fault in parse_documents(param.values[0]["input"].encode()).faults]

    assert [fault for fault in faults if not fault.suggestion] == []


def test_the_fields_whose_values_stay_text_can_be_chosen() -> None:
    raw = b"labels: {a: 1.10}\ntags: {a: 1.10}\n"

    assert parse_documents(raw, text_fields=frozenset({"labels"})).documents[0].value == {
        "labels": {"a": "1.10"},
        "tags": {"a": 1.1},
    }


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_every_json_value_is_read_as_it_is_meant(indent: int | str | None) -> None:
    chance = random.Random(7)
    parts = ["\\", "u", "\\ud83d", "\\ude00", "\N{GRINNING FACE}", "\u00e9", "\t", '"', "/", "x"]
    for _ in range(500):
        value = {"a": "".join(chance.choices(parts, k=6)), "b": [chance.random(), None, {"c": True}]}
        reading = parse_documents(json.dumps(value, indent=indent).encode())
        assert [each.value for each in reading.documents] == [value], reading.faults


def test_a_document_with_single_faults_has_a_partial_value() -> None:
    [document] = parse_documents(b"a: yes\nb: [1, 012]\nc: 1\nc: 2\nd: x\n5: z\n").partial

    *places, key = unreadable_paths(document.value)
    assert places == [("a",), ("b", 1), ("c",)]
    assert document.value[key[0]] == "z"
    assert document.value["d"] == "x"


@pytest.mark.parametrize("raw", ["a: *b\n", "{<<: {a: 1}, <<: {b: 2}}\n", "a: !x [1]\n", "a: b: c\n"])
def test_an_unreadable_document_has_no_partial_value(raw: str) -> None:
    partial = parse_documents(raw.encode()).partial

    assert [each.value for each in partial if isinstance(each.value, dict)] == []
