"""The reference pages say what the program knows: all of it, nothing else, and as it is now."""

from __future__ import annotations

import re

import pytest

from reconciler.cli import COMMANDS
from reconciler.documents.schemas import SCHEMA_NAMES
from reconciler.documents.schemas import load_schema as schema_named
from reconciler.model.finding import Severity
from reconciler.model.record import Health
from reconciler.records.events import Event
from tests.docs import reasons, rules, schemas
from tests.docs.literals import texts, words
from tests.docs.pages import DOCS, MAKERS, pages
from tests.project.tree import modules

READERS = tuple(
    f"reconciler/{part}" for part in ("documents", "manifests", "source", "planning", "pipeline", "settings")
)
NO_RULES = {
    "run-status", "packed-refs", "in-place", "scale-only", "new-version", "prune-budget", "deletes-volumes",
}  # fmt: skip
"""Words with a hyphen that are something else."""

TELLERS = tuple(f"reconciler/{part}" for part in ("errors", "engines", "pipeline", "status", "source", "daemon"))
NO_REASONS = {
    "Answer": "a type",
    "Form": "a type",
    "Complete": "the state of an execution, document 4",
    "Success": "the state of an execution, document 4",
    "True": "the state of an execution, document 4",
    "Waiting": "the type of a note in the records",
    "Health": "the beginning of HealthUnknown",
    "Stale": "the end of a type",
    "Suspended": "the end of a type",
    "Normal": "the type of an event",
    "Warning": "the type of an event",
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_page_is_as_the_program_has_it(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name], "run: python -m tests.docs"


def test_no_page_is_left_over() -> None:
    assert {path.name for path in DOCS.glob("*.md")} == set(MAKERS)


def test_every_rule_says_what_to_do() -> None:
    known = {rule for section in rules.SECTIONS.values() for rule in section}
    assert known == set(rules.REMEDIES)


def test_every_rule_of_the_program_has_its_entry() -> None:
    named = words("[a-z]+(-[a-z]+)+", *READERS) - NO_RULES
    assert {word for word in named if not word.startswith("x-")} <= rules.REMEDIES.keys()


def test_every_list_of_rules_is_on_the_page() -> None:
    lists = [path for path, text in ((path, _source(path)) for path in modules()) if re.search(r"^RULES\b", text, re.M)]
    assert len(lists) == len(rules.SECTIONS) + 1, "one heading holds the rules of two modules"


def test_every_documented_rule_can_be_broken() -> None:
    used = list(texts(*READERS))
    assert [rule for rule in rules.REMEDIES if used.count(rule) < (1 if rule == "duplicate-name" else 2)] == []


def test_notices_are_those_that_the_program_calls_so() -> None:
    lines = [line for path in modules() for line in _source(path).splitlines()]
    milder = [line for line in lines if re.search(r"Severity\.(WARNING|NOTICE)\)", line)]
    assert len(milder) == len(rules.NOTICES), milder
    assert {Severity.NOTICE, Severity.WARNING, Severity.ERROR} == set(Severity)


def test_every_reason_is_documented_and_no_other() -> None:
    said = words("[A-Z][a-z]+([A-Z][a-z]+)*", *TELLERS) - NO_REASONS.keys() - reasons.TYPES.keys()
    listed = {*reasons.RESOURCES, *reasons.SOURCES, *reasons.EVENTS, *reasons.ELSEWHERE}
    assert said - listed - set(Health) == set()
    assert listed - said == {"HealthUnknown", "Loading", "Unhealthy"}, "these are made from a health"


def test_every_type_of_condition_is_documented() -> None:
    import reconciler.status.conditions as module

    types = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    assert types == reasons.TYPES.keys()


def test_every_type_of_event_is_named() -> None:
    assert "Normal" in str(Event.__annotations__["type"])
    assert all(told.startswith(("Normal.", "Warning.")) for told in reasons.EVENTS.values())


def test_every_line_of_the_log_is_documented() -> None:
    calls = re.compile(r'log\(\)(?:\.\w+|, level\))\("([a-z ]+)"')
    lines = {line for path in modules() if path != "reconciler/logs.py" for line in calls.findall(_source(path))}
    assert lines == reasons.LOG.keys()


def test_every_annotation_is_explained() -> None:
    used = {word for name in SCHEMA_NAMES for word in _annotations(schema_named(name))}
    assert used == schemas.MEANINGS.keys()


def test_every_command_has_its_section() -> None:
    assert re.findall(r"^## (\w+)$", pages()["commands.md"], re.M) == list(COMMANDS)


def _source(path: str) -> str:
    return (DOCS.parent / path).read_text()


def _annotations(node: object) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_annotations, node))
    if not isinstance(node, dict):
        return set()
    return {name for name in node if name.startswith("x-")}.union(*map(_annotations, node.values()))
