"""Documents against their schemas: what is said, where, and that both validators agree."""

from __future__ import annotations

import copy
import ipaddress
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.documents.places import Places, locate
from reconciler.documents.reader import read
from reconciler.documents.schemas import SCHEMA_NAMES, shipped
from reconciler.documents.validation import RULES, checker
from reconciler.model.finding import Fault, Severity
from tests.documents.tree import CASES, full, pointers

REFUSED = yaml.safe_load((CASES / "refused.yaml").read_bytes())
MUTATIONS = 600
VALUES = [
    None,
    True,
    0,
    -1,
    1.0,
    80.0,
    1.5,
    10**6,
    2**63,
    "",
    "x",
    "X",
    "1",
    "true",
    "shop\n",
    "\nshop",
    "ü",
    "١",
    "a b",
    "//secret/x",
    "x" * 5000,
    "1m",
    "10.0.0.0/8",
    [],
    {},
    [1],
    ["x"],
    {"x": 1},
    {"": ""},
]


NOWHERE = Places()


def faults_of(name: str, raw: bytes) -> list[Fault]:
    reading = read(raw)
    assert not reading.faults
    document = reading.documents[0]
    return checker(name).faults(document.value, locate(raw, document.index))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["case"].replace(" ", "-"))
def test_what_is_wrong_is_said_where_it_is(case: dict[str, Any]) -> None:
    raw = case["document"].encode()
    found = faults_of(case["about"], raw)
    told = [
        f"{fault.line}:{fault.column} {fault.rule} | {fault.message}"
        + f" | {fault.suggestion}" * bool(fault.suggestion)
        for fault in found
    ]
    assert told == case["faults"]
    assert not checker(case["about"]).valid(read(raw).documents[0].value)
    assert all(fault.severity is Severity.ERROR for fault in found)


def test_every_rule_that_holds_for_all_fields_is_shown_by_a_case() -> None:
    assert set(RULES) - {line.split()[1] for case in REFUSED for line in case["faults"]} == set()


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_both_validators_agree_on_every_mutation_of_a_valid_document(name: str) -> None:
    chance = random.Random(f"mutations of {name}")
    documents = full(name)
    check = checker(name)
    refused = 0
    for turn in range(MUTATIONS):
        mutant, change = _mutated(documents[turn % len(documents)], chance)
        valid = check.valid(mutant)
        assert (check.faults(mutant, NOWHERE) == []) is valid, change
        refused += not valid
    assert MUTATIONS // 10 < refused < MUTATIONS


@pytest.mark.parametrize("path", sorted(shipped("examples/repo").rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_example_repository_is_valid(path: Path) -> None:
    for document in read(path.read_bytes()).documents:
        assert checker(document.value["kind"]).faults(document.value, NOWHERE) == []


@pytest.mark.parametrize("schema_type", ["opaque", "dictionary", "userpass", "tls", "aws", "ecr", "docker", "gcp"])
def test_no_mutation_makes_a_secret_appear_in_a_message(schema_type: str) -> None:
    chance = random.Random(schema_type)
    mark = "hunter2"
    base = next(document for document in full("secret") if document["type"] == schema_type)
    for _ in range(60):
        mutant, _ = _mutated(base, chance)
        if "data" in mutant:
            mutant["data"] = _marked(mutant["data"], mark)
        told = " ".join(fault.message + fault.suggestion for fault in checker("secret").faults(mutant, NOWHERE))
        assert mark not in told


def test_a_long_value_is_quoted_in_part() -> None:
    document = {"kind": "gvc", "name": "shop", "spec": {"staticPlacement": {"locationLinks": ["x" * 10_000]}}}
    (fault,) = checker("gvc").faults(document, NOWHERE)
    assert len(fault.message) < 200
    assert "xxx…" in fault.message


def test_at_most_a_hundred_faults_are_told_and_in_good_time() -> None:
    env = [{"nome": "x" * 100, "value": 1}] * 10_000
    document = {"kind": "workload", "name": "web", "spec": {"containers": [{"name": "a", "image": "b", "env": env}]}}
    began = time.monotonic()
    assert 0 < len(checker("workload").faults(document, NOWHERE)) <= 100
    assert time.monotonic() - began < 1


def test_a_checker_is_made_once() -> None:
    assert checker("gvc") is checker("gvc")


def _mutated(document: Any, chance: random.Random) -> tuple[Any, str]:
    """A copy of ``document`` with one thing changed, and what."""
    mutant = copy.deepcopy(document)
    pointer = chance.choice(list(pointers(mutant))[1:])
    way, last = pointer[:-1], pointer[-1]
    holder: Any = mutant
    for part in way:
        holder = holder[part]
    before = holder[last]
    change = chance.choice(["replace", "replace", "remove", "rename", "add", "repeat", "twist"])
    if change == "remove":
        del holder[last]
    elif change == "rename" and isinstance(holder, dict):
        holder[str(last)[:-1] + chance.choice(["", "X", "\n", " "])] = holder.pop(last)
    elif change == "add" and isinstance(holder, dict):
        holder[chance.choice(["nonsense", "", "port", "name", "data", "x\n"])] = chance.choice(VALUES)
    elif change == "repeat" and isinstance(holder, list):
        holder.extend([before] * chance.choice([1, 8, 260]))
    elif change == "twist" and isinstance(holder[last], str):
        holder[last] = chance.choice(
            [f"{holder[last]}\n", holder[last].upper(), f"{holder[last]}-", f" {holder[last]}"]
        )
    else:
        holder[last] = chance.choice(VALUES)
    return mutant, f"{change} {pointer}"


def _marked(value: Any, mark: str) -> Any:
    """``value`` with every text in it replaced by one that holds ``mark``."""
    if isinstance(value, dict):
        return {name: _marked(member, mark) for name, member in value.items()}
    if isinstance(value, list):
        return [_marked(item, mark) for item in value]
    return f"{value} {mark}" if isinstance(value, str) else value


def test_an_address_is_what_python_takes_for_one() -> None:
    check, chosen = checker("identity"), random.Random(7)
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
