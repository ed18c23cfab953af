"""The glossary has every term of the project, and no term that is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from reconciler.documents.schema.loader import SCHEMA_NAMES, load_schema
from tests.project.test_architecture import rooms
from tests.project.test_budgets import words
from tests.project.tree import ROOT, classes, modules

PAGE = ROOT / "docs" / "glossary.md"
MET, READ, ROOMS = "Words that users meet", "Words that readers of the code meet", "Rooms of the code"

EXPLAINED = ("reconciler/model/", "reconciler/planning/", "reconciler/engines/protocol.py")
"""Where every public class is a word of the glossary, or made of such words."""
VIEWS = ("reconciler/model/kinds/", "reconciler/model/query.py")
"""Classes here are also made of the words of the fields that they stand for, which docs/manifests.md explains."""

PLAIN = frozenset(
    {
        "certificate",
        "class",
        "count",
        "file",
        "growth",
        "id",
        "ignore",
        "input",
        "lifecycle",
        "observed",
        "place",
        "planner",
        "policy",
        "privacy",
        "registration",
        "request",
        "state",
        "support",
        "term",
        "watch",
    }
)
"""Words of a compound that mean what any dictionary has."""


@cache
def entries() -> dict[str, dict[str, str]]:
    """Title of each section → word → what it is. Every line has a word, what it is and its neighbour."""
    tables: dict[str, dict[str, str]] = {}
    for part in PAGE.read_text().split("\n## ")[1:]:
        title, _, rest = part.partition("\n")
        rows = [line.strip("| ").split(" | ") for line in rest.splitlines() if line.startswith("|")]
        assert rows[0] == ["Word", "What it is", "Neighbour"], title
        assert [row for row in rows if len(row) != 3 or not all(row)] == [], title
        tables[title] = {row[0]: row[1] for row in rows[2:]}
        assert len(tables[title]) == len(rows) - 2, f"a word stands twice under {title}"
    return tables


def plain(word: str) -> str:
    """``policies`` → ``policy``, ``locations`` → ``location``; only to compare."""
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def words_of(name: str) -> list[str]:
    """``ChangeSet``, ``change-set`` and ``Change sets`` → ``change``, ``set``."""
    return [plain(word) for part in re.split(r"[^A-Za-z]+", name) if part for word in words(part)]


@cache
def known() -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(words_of(word)) for section in entries().values() for word in section)


@cache
def fields() -> frozenset[str]:
    """Every word that the name of a field, or of a kind, is made of."""

    def names(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            properties = node.get("properties")
            yield from properties if isinstance(properties, dict) else ()
        for member in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from names(member)

    return frozenset(
        word for schema in SCHEMA_NAMES for name in (schema, *names(load_schema(schema))) for word in words_of(name)
    )


def is_explained(parts: list[str], more: frozenset[str]) -> bool:
    """Whether ``parts`` are words of the glossary, one after another, with ordinary ones or ``more`` between them."""
    if not parts:
        return True
    lengths = [size for size in range(1, len(parts) + 1) if tuple(parts[:size]) in known()]
    if parts[0] in PLAIN | more:
        lengths.append(1)
    return any(is_explained(parts[size:], more) for size in lengths)


def named() -> dict[str, str]:
    """Where each public class stands that the glossary has to explain → its name."""
    public = {place: node.name for place, node in classes() if not node.name.startswith("_")}
    return {place: name for place, name in public.items() if place.startswith(EXPLAINED)}


def test_every_public_class_of_the_model_and_of_plans_is_explained() -> None:
    lost = [
        place
        for place, name in named().items()
        if not is_explained(words_of(name), fields() if place.startswith(VIEWS) else frozenset())
    ]
    assert lost == [], "give each a line in docs/glossary.md, or a name made of words there"


def test_every_room_is_explained() -> None:
    assert {word.strip("`") for word in entries()[ROOMS]} == rooms()


def test_every_word_of_the_code_is_a_class_or_module_there() -> None:
    there = {node.name for _, node in classes()}
    assert {word for word in entries()[READ] if word.strip("`") not in there} == set()


@cache
def written() -> str:
    """All code and all other pages as words with blanks between them."""
    pages = [
        path for path in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"] if path.name not in ("rules.md", PAGE.name)
    ]
    texts = [*(path.read_text() for path in pages), *((ROOT / path).read_text() for path in modules())]
    return " " + re.sub(r"[^a-z]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", "\n".join(texts)).lower()) + " "


@pytest.mark.parametrize("word", sorted(entries()[MET]))
def test_every_word_that_users_meet_is_used(word: str) -> None:
    parts = re.sub(r"[^a-z]+", " ", word.lower()).strip()
    assert f" {parts} " in written() or f" {parts}s " in written()


def test_words_stand_in_order_of_the_alphabet() -> None:
    for section in entries().values():
        listed = [word.strip("`").lower().replace("_", " ") for word in section]
        assert listed == sorted(listed)


def test_every_ordinary_word_is_needed() -> None:
    used = {part for name in named().values() for part in words_of(name)}
    assert PLAIN - used == set()
    assert PLAIN & {word for each in known() if len(each) == 1 for word in each} == set()
