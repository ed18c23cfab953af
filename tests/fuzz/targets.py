"""What is fuzzed: how it is checked, with what it begins, and how its inputs are changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from tests.fuzz import oracles, seeds
from tests.support.mutations import Pool, examples, mutated

MOST_DOCUMENTS = 12


class Target(NamedTuple):
    """``check`` raises where something is wrong; ``structured`` inputs are changed document by document.

    ``share`` is its part of the time.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    structured: bool = False
    share: int = 1


TARGETS = {
    "reader": Target(oracles.reading, seeds.texts),
    "decoder": Target(oracles.decoding, seeds.texts),
    "json": Target(oracles.reading_json, seeds.json_texts),
    "rules": Target(oracles.checking, seeds.streams, structured=True, share=2),
    "compose": Target(oracles.composing, seeds.projects),
    "conversions": Target(oracles.converting, seeds.resources),
    "kamal": Target(oracles.deploying, seeds.deployments),
    "quadlets": Target(oracles.uniting, seeds.units),
    "steps": Target(oracles.stepping, seeds.steps, structured=True),
}


@cache
def pool() -> Pool:
    """What is mixed into structured inputs."""
    return Pool([document for seed in seeds.streams() for document in seeds.parted(seed)])


def changed(raw: bytes, seed: int) -> bytes | None:
    """A structured input with some values changed; None where ``raw`` is none."""
    chance = random.Random(seed)
    try:
        documents = seeds.parted(raw)
    except (ValueError, RecursionError):
        return None
    if "then" in documents:
        return _changed_on_the_way(documents, chance)
    if chance.random() < 0.1:
        documents = _rearranged(documents, chance)
    at = chance.randrange(len(documents))
    documents[at] = mutated(documents[at], chance, pool())
    if isinstance(documents[at], dict) and chance.random() < 0.1:
        documents[at] = {**documents[at], "sops": mutated(seeds.SOPS["sops"], chance, pool(), most=2)}
    return seeds.stream(documents, escaped=chance.random() < 0.1)


def _changed_on_the_way(documents: list[Any], chance: random.Random) -> bytes:
    """Two revisions with another difference between them, or with the same in both."""
    cut = documents.index("then")
    before, after = documents[:cut], documents[cut + 1 :]
    at = chance.randrange(len(after)) if after else 0
    form = chance.random()
    if not after or (form < 0.1 and len(after) < MOST_DOCUMENTS):
        after.append(chance.choice(chance.choice([before, examples_once()]) or [{}]))
    elif form < 0.15:
        after.pop(at)
    elif form < 0.3:
        after[at] = {**after[at], "name": chance.choice(["web", "db", "a", "shop"])} if _named(after[at]) else {}
    else:
        after[at] = mutated(after[at], chance, pool(), most=1 if form < 0.8 else 4)
    if chance.random() < 0.15:
        before = list(after)
    return seeds.stream([*before, "then", *after])


def _named(document: Any) -> bool:
    return isinstance(document, dict) and "name" in document


def _rearranged(documents: list[Any], chance: random.Random) -> list[Any]:
    """With another document among them, or one less, or in another order."""
    if len(documents) < MOST_DOCUMENTS:
        documents.append(chance.choice(examples_once()))
    else:
        documents.pop(chance.randrange(len(documents)))
    chance.shuffle(documents)
    return documents


@cache
def examples_once() -> list[Any]:
    """The examples, read once."""
    return [*examples()]
