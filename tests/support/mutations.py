"""Documents made wrong: a few edits at random places, the same for the same seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from reconciler.documents.schema.loader import SCHEMA_NAMES, load_schema
from tests.support.cases import CASES

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "repo"
FULL = CASES / "schemas"

SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    79,
    80,
    1337,
    65_535,
    65_536,
    2**31,
    2**63 - 1,
    -(2**63),
    0.5,
    80.0,
    1e300,
    -0.0,
    "",
    " ",
    "a",
    "-",
    "/",
    "//",
    "0",
    "00",
    "*",
    "0%",
    "101%",
    "1m",
    "1Mi",
    "1e3",
    "true",
    "null",
    "²",
    "٣",
    "é",
    "ß" * 70,
    "x" * 63,
    "x" * 64,
    "x" * 300,
    "10.0.0.0/33",
    "::1/129",
    "* * * * *",
    "61 24 32 13 8",
    "*/0 * * * *",
    "1-0 * * * *",
    "$(A)",
    "$(PORT)",
    "$$(A)",
    "$(",
    "platform://secret/",
    "platform://secret/db.",
    "platform://volumeset/x",
    "//secret/",
    "//gvc//workload/x",
    "/org/acme/gvc/shop/workload/web",
    "workload/shop/web",
    "scratch://",
    "s3://",
)
"""Values that some check or other may not have thought of."""

LETTERS = "a0-_./:%*$(){}[]#&!|>'\"\\@,~ \t\n²٣éß日\u2028\u202e\x9b\u0130\U0001f600"
"""Characters that mean something somewhere."""

MOST_PLACES = 3_000
"""A document with more values is not made any larger."""


class ValueSlot(NamedTuple):
    """A value in a document: what holds it, and under which key or number."""

    holder: Any
    step: Any

    @property
    def value(self) -> Any:
        """The value at the place."""
        return self.holder[self.step]

    def put(self, value: Any) -> None:
        """Let ``value`` stand there."""
        self.holder[self.step] = value


def examples() -> list[dict[str, Any]]:
    """Every manifest of examples/repo and of the full cases, as plain values."""
    files = [*sorted(EXAMPLES.rglob("*.yaml")), *sorted(FULL.glob("*-full.yaml"))]
    loaded = (document for path in files for document in yaml.load_all(path.read_bytes(), yaml.CSafeLoader))
    return [document for document in loaded if isinstance(document, dict) and "kind" in document]


class Pool:
    """Values, fields and words to mix in: those of the schemas and of ``documents``."""

    def __init__(self, documents: Iterable[Any]) -> None:
        self.values: list[Any] = list(SCALARS)
        self.fields: list[tuple[str, Any]] = []
        for document in documents:
            self._gather(document)
        for name in SCHEMA_NAMES:
            self._describe(load_schema(name))

    def _gather(self, value: Any) -> None:
        for slot in places(value):
            self.values.append(slot.value)
            if isinstance(slot.step, str):
                self.fields.append((slot.step, slot.value))

    def _describe(self, schema: Any) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._describe(each)
        if not isinstance(schema, dict):
            return
        values = [*_listed(schema.get("examples")), *_listed(schema.get("enum"))]
        self.values.extend(values)
        for name, child in _mapped(schema.get("properties")).items():
            listed = [*_listed(child.get("examples")), *_listed(child.get("enum"))] if isinstance(child, dict) else []
            self.fields.extend((name, value) for value in listed or [{}, [], ""])
        for child in schema.values():
            self._describe(child)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapped(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def places(value: Any) -> Iterator[ValueSlot]:
    """Every place below ``value``, from the outside in."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        steps = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for step in steps:
            yield ValueSlot(holder, step)
            waiting.append(holder[step])


def mutated(document: Any, chance: random.Random, pool: Pool, most: int = 4) -> Any:
    """A copy of ``document`` with one to ``most`` edits; equal seeds make equal copies."""
    changed = [copy.deepcopy(document)]
    for _ in range(chance.randint(1, most)):
        slots = list(places(changed))
        if len(slots) > MOST_PLACES:
            break
        # Half of the edits go to the deeper half: that is what the rules read.
        place = slots[chance.randrange(len(slots) // 2 if chance.random() < 0.5 else 0, len(slots))]
        chance.choice(EDITS)(place, chance, pool)
    return changed[0]


def _delete(place: ValueSlot, chance: random.Random, _: Pool) -> None:
    if isinstance(place.holder, dict) or len(place.holder) > 1:
        del place.holder[place.step]


def _duplicate(slot: ValueSlot, chance: random.Random, _: Pool) -> None:
    again = copy.deepcopy(slot.value)
    if isinstance(slot.holder, dict):
        slot.holder[chance.choice(list(slot.holder))] = again
    elif len(slot.holder) > 1 or chance.random() < 0.5:
        slot.holder.insert(chance.randint(0, len(slot.holder)), again)


def _retype(slot: ValueSlot, chance: random.Random, _: Pool) -> None:
    value = slot.value
    forms: list[Any] = [None, [value], {"value": value}, str(value)[:300], [], {}, chance.choice(SCALARS)]
    if isinstance(value, str) and len(value) < 19:
        forms += [int(value)] if value.isascii() and value.isdigit() else [value.encode().hex(), len(value)]
    slot.put(chance.choice(forms))


def _boundary(slot: ValueSlot, chance: random.Random, _: Pool) -> None:
    value = slot.value
    if isinstance(value, bool):
        slot.put(not value)
    elif isinstance(value, int) and abs(value) < 2**62:
        slot.put(chance.choice([value + 1, value - 1, -value, 0, value * 10, value * 1000, float(value)]))
    elif isinstance(value, str):
        slot.put(_edited(value, chance))
    elif isinstance(value, list) and value and len(value) < 50:
        slot.put([copy.deepcopy(each) for _ in range(chance.choice([2, 8, 20])) for each in value])
    else:
        slot.put(chance.choice(SCALARS))


def _edited(text: str, chance: random.Random) -> str:
    at = chance.randint(0, len(text))
    letter = chance.choice(LETTERS)
    forms = [text[:at], text[at:], text[:at] + letter + text[at:], text[:at] + letter + text[at + 1 :], text.upper()]
    return chance.choice([*forms, (text * 20)[:600], text + text[:at], text[::-1]])


def _rename(slot: ValueSlot, chance: random.Random, pool: Pool) -> None:
    if not isinstance(slot.step, str):
        return
    value = slot.holder.pop(slot.step)
    known = chance.choice(pool.fields)[0]
    slot.holder[known if chance.random() < 0.5 else _edited(slot.step, chance)] = value


def _splice(place: ValueSlot, chance: random.Random, pool: Pool) -> None:
    place.put(copy.deepcopy(chance.choice(pool.values)))


def _add(place: ValueSlot, chance: random.Random, pool: Pool) -> None:
    inner = place.value if isinstance(place.value, dict | list) else place.holder
    name, value = chance.choice(pool.fields)
    if isinstance(inner, dict):
        inner[name] = copy.deepcopy(value)
    else:
        inner.append(copy.deepcopy(chance.choice(pool.values)))


def _same_field(slot: ValueSlot, chance: random.Random, pool: Pool) -> None:
    """Copy a field from another document: most results are almost right, which is where rules bite."""
    alike = [value for name, value in pool.fields if name == slot.step]
    slot.put(copy.deepcopy(chance.choice(alike or pool.values)))


EDITS = (_delete, _duplicate, _retype, _boundary, _boundary, _rename, _splice, _add, _same_field, _same_field)
"""The mutations of a place; one that is listed twice is twice as likely."""
