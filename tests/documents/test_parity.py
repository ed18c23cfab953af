"""The quick validator and the one that words faults give the same verdict, and neither reveals a secret.

PARITY_MUTATIONS is how many mutations are tried: 1,000 by default.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from reconciler.documents.positions import Positions
from reconciler.documents.reader import parse_documents
from reconciler.documents.schema import dialect
from reconciler.documents.schema.loader import KIND_NAMES
from reconciler.documents.schema.validator import MOST, get_checker
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from tests.documents.tree import full
from tests.support.mutations import Pool, examples, mutated
from tests.support.rule_cases import Case, case_files

MUTATIONS = int(os.environ.get("PARITY_MUTATIONS") or 1_000)
SECRETS = max(MUTATIONS // 5, 200)
CANARY = "hunter2canary"


def written() -> Iterator[Any]:
    """Every document of every case about rules that can be read at all."""
    for path in case_files():
        for content in Case.load(path).files.values():
            raw = content.encode() if isinstance(content, str) else content
            if isinstance(raw, bytes):
                yield from (document.value for document in parse_documents(raw).documents)


def verdict(kind: str, document: Any) -> bool:
    """The verdicts of both validators, which must agree; every fault must have a message.

    Returns the faults of the slow one, which skips the parts that the quick one finds sound.
    """
    check = get_checker(kind)
    breaches = check.breaches(document)
    alone = list(islice(dialect.list_breaches(dialect.SchemaValidator(check.schema), document), MOST))
    assert (alone == []) is check.valid(document), json.dumps(document, default=str)
    assert breaches == alone, json.dumps(document, default=str)
    assert len(check.phrase_errors(breaches, Positions())) >= bool(breaches)
    return not breaches


def test_both_agree_on_every_case() -> None:
    verdicts = [
        verdict(document["kind"], document)
        for document in written()
        if isinstance(document, dict) and document.get("kind") in KIND_NAMES
    ]
    assert set(verdicts) == {True, False}
    assert len(verdicts) > 300


def test_both_agree_on_mutations_of_the_examples() -> None:
    chance = random.Random("parity")
    documents = examples()
    pool = Pool(documents)
    assert {document["kind"] for document in documents} == set(KIND_NAMES)
    refused = 0
    for turn in range(MUTATIONS):
        document = documents[turn % len(documents)]
        refused += not verdict(document["kind"], mutated(document, chance, pool))
    assert MUTATIONS // 4 < refused < MUTATIONS


@pytest.mark.parametrize("secret_type", sorted({document["type"] for document in full("secret")}))
def test_no_mutation_makes_a_secret_appear_in_faults(secret_type: str) -> None:
    chance = random.Random(secret_type)
    pool = Pool(examples())
    base = next(document for document in full("secret") if document["type"] == secret_type)
    faulty = 0
    for turn in range(SECRETS // 12):
        document = {**base, "data": _marked(mutated(base["data"], chance, pool), chance if turn % 2 else None)}
        faults = decode_manifests(json.dumps(document).encode(), ManifestContext("acme")).faults
        assert not [fault for fault in faults if CANARY in fault.message + fault.suggestion], document
        faulty += bool(faults)
    assert faulty


def _marked(value: Any, chance: random.Random | None) -> Any:
    """``value`` with the canary in every text and number, with ``chance`` in some names of fields as well."""
    if isinstance(value, dict):
        members = islice(value.items(), 200)
        return {
            _named(name, chance): member if member == "base64" else _marked(member, chance) for name, member in members
        }
    if isinstance(value, list):
        return [_marked(item, chance) for item in value[:200]]
    return f"{value}{CANARY}" if isinstance(value, str) else CANARY


def _named(name: str, chance: random.Random | None) -> str:
    return f"{name[:20]}{CANARY}" if chance and chance.random() < 0.3 else name[:200]
