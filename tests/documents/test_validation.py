"""Documents against their schemas: messages, places, and that both validators agree."""

from __future__ import annotations

import ipaddress
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.documents.locator import locate_document
from reconciler.documents.positions import Positions
from reconciler.documents.reader import parse_documents
from reconciler.documents.schema.loader import find_shipped_path
from reconciler.documents.schema.validator import RULES, get_checker
from reconciler.model.finding import Fault, Severity
from tests.documents.tree import CASES
from tests.support.pace import in_time

REFUSED = yaml.safe_load((CASES / "refused.yaml").read_bytes())
NOWHERE = Positions()


def faults_of(name: str, raw: bytes) -> list[Fault]:
    reading = parse_documents(raw)
    assert not reading.faults
    document = reading.documents[0]
    return get_checker(name).faults(document.value, locate_document(raw, document.index))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["case"].replace(" ", "-"))
def test_faults_are_reported_at_their_places(case: dict[str, Any]) -> None:
    raw = case["document"].encode()
    faults = faults_of(case["about"], raw)
    reported = [
        f"{fault.line}:{fault.column} {fault.rule} | {fault.message}"
        + f" | {fault.suggestion}" * bool(fault.suggestion)
        for fault in faults
    ]
    assert reported == case["faults"]
    assert not get_checker(case["about"]).valid(parse_documents(raw).documents[0].value)
    assert all(fault.severity is Severity.ERROR for fault in faults)


def test_every_rule_that_holds_for_all_fields_is_shown_by_a_case() -> None:
    assert {rule.id for rule in RULES} - {line.split()[1] for case in REFUSED for line in case["faults"]} == set()


@pytest.mark.parametrize("path", sorted(find_shipped_path("examples/repo").rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_example_repository_is_valid(path: Path) -> None:
    for document in parse_documents(path.read_bytes()).documents:
        assert get_checker(document.value["kind"]).faults(document.value, NOWHERE) == []


def test_a_long_value_is_quoted_in_part() -> None:
    document = {"kind": "gvc", "name": "shop", "spec": {"staticPlacement": {"locationLinks": ["x" * 1_000]}}}
    (fault,) = get_checker("gvc").faults(document, NOWHERE)
    assert len(fault.message) < 200
    assert "xxx…" in fault.message


def test_at_most_a_hundred_faults_are_reported_and_in_time() -> None:
    env = [{"nome": "x" * 100, "value": 1}] * 10_000
    document = {"kind": "workload", "name": "web", "spec": {"containers": [{"name": "a", "image": "b", "env": env}]}}
    found, _ = in_time(lambda: get_checker("workload").faults(document, NOWHERE), 0.7)
    assert 0 < len(found) <= 100


def test_a_checker_is_made_once() -> None:
    assert get_checker("gvc") is get_checker("gvc")


def test_an_address_is_what_python_takes_for_one() -> None:
    check, chosen = get_checker("identity"), random.Random(7)
    parts = ("", "", "0", "12ab", "f", "12345", "g", "1.2.3.4", "256.0.0.1")
    taken = 0
    for _ in range(20_000):
        text = ":".join(chosen.choices(parts, weights=(3, 3, 9, 9, 9, 1, 1, 2, 1), k=chosen.randint(1, 9)))
        resource = {"name": "x", "IPs": [text], "ports": [1]}
        known = _is_address(text)
        taken += known
        assert check.valid({"kind": "identity", "name": "i", "networkResources": [resource]}) == known, text
    assert taken > 1_000


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def test_two_suggestions_for_one_fault_are_always_in_the_same_order() -> None:
    fields = ", ".join(f"wrong{number}: x" for number in range(12))
    found = faults_of("cloudaccount", f"kind: cloudaccount\nname: a\nprovider: aws\ndata: {{{fields}}}\n".encode())
    unknown = [(fault.line, fault.column, fault.suggestion) for fault in found if fault.rule == "unknown-field"]
    assert len(unknown) == 24
    assert unknown == sorted(unknown)
