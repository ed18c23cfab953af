"""What is fuzzed: how it is checked, with what it begins, and how its inputs are changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from tests.fuzz import oracles, seeds
from tests.mutate import Pool, examples, mutated

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
    "rules": Target(oracles.checking, seeds.streams, structured=True, share=2),
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
    if chance.random() < 0.1:
        documents = _rearranged(documents, chance)
    at = chance.randrange(len(documents))
    documents[at] = mutated(documents[at], chance, pool())
    return seeds.stream(documents)


def _rearranged(documents: list[object], chance: random.Random) -> list[object]:
    """With another document among them, or one less, or in another order."""
    if len(documents) < MOST_DOCUMENTS:
        documents.append(chance.choice(examples_once()))
    else:
        documents.pop(chance.randrange(len(documents)))
    chance.shuffle(documents)
    return documents


@cache
def examples_once() -> list[object]:
    """The examples, read once."""
    return [*examples()]
