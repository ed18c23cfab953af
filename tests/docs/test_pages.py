"""The reference pages describe the program: all of it, nothing else, and as it is now."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from docs.generate import schema_files, schemas
from docs.generate.log_lines import LINES
from docs.generate.pages import BY_HAND, COMING_FROM, DOCS, MAKERS, NOTE, TUTORIALS
from reconciler.cli import read_commands
from reconciler.documents.schema.loader import SCHEMA_NAMES
from reconciler.documents.schema.loader import load_schema as schema_named
from reconciler.model.rule import Rule
from reconciler.render.history import OUTCOME_COLOURS
from reconciler.rulebook import load_rulebook, load_sections
from tests.project.tree import modules, walk

NO_BOOK = ("reconciler.convert", "reconciler.cli.__main__", "reconciler.demo")
"""Modules that are not searched for rules: they are programs, or have a rulebook of their own."""

FAULTY = {"Fault", "Finding", "Problem", "Refusal", "_fault", "add", "end", "NormalizeProblem"}
"""Functions that report a fault."""


@pytest.mark.parametrize("name", MAKERS)
def test_a_page_is_as_the_program_has_it(name: str) -> None:
    assert (DOCS / name).read_text() == NOTE + MAKERS[name](), "run: python -m docs.generate"


@pytest.mark.parametrize("name", schema_files.files())
def test_a_schema_file_that_follows_from_others_does(name: str) -> None:
    assert (schema_files.SCHEMAS / name).read_text() == schema_files.files()[name], "run: python -m docs.generate"


def test_every_outcome_of_a_run_is_explained() -> None:
    [table] = re.findall(r"^\| Outcome \|.*\n\|.*\n((?:\|.*\n)+)", (DOCS / "operations.md").read_text(), re.M)
    assert re.findall(r"^\| `(\w+)`", table, re.M) == list(OUTCOME_COLOURS)


def test_no_page_is_left_over() -> None:
    assert {path.name for path in DOCS.glob("*.md")} == MAKERS.keys() | BY_HAND
    folders = (DOCS / "coming-from", DOCS / "tutorials")
    further = {path.relative_to(DOCS).as_posix() for folder in folders for path in folder.iterdir()}
    assert further == COMING_FROM | TUTORIALS


def test_every_rule_has_what_why_and_a_citation() -> None:
    for rule in load_rulebook().values():
        assert rule.what.endswith("."), rule.id
        assert rule.why.endswith("."), rule.id
        assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", rule.id)


def test_every_rule_that_is_written_down_is_in_the_book() -> None:
    names = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in modules()]
    found = {rule.id for name in names if not name.startswith(NO_BOOK) for rule in _rules(import_module(name))}
    assert found == load_rulebook().keys()


def test_every_rule_that_a_fault_names_is_in_the_book() -> None:
    named = {
        rule
        for path, module in modules().items()
        if not path.startswith("reconciler/convert/")
        for rule in _named(module)
    }
    assert {"unknown-kind", "org-name", "env-reserved"} <= named
    assert named - load_rulebook().keys() == set()


def test_every_section_of_the_book_has_rules() -> None:
    assert all(load_sections().values())
    assert sum(map(len, load_sections().values())) == len(load_rulebook())


def test_every_line_of_the_log_is_documented() -> None:
    calls = re.compile(r'log\(\)(?:\.\w+|, level\))\("([a-z_ ]+)"')
    lines = {line for path in modules() if path != "reconciler/logs.py" for line in calls.findall(_source(path))}
    assert lines == LINES.keys()


def test_every_annotation_is_explained() -> None:
    used = {word for name in SCHEMA_NAMES for word in _annotations(schema_named(name))}
    assert used == schemas.MEANINGS.keys()


def test_every_command_has_its_section() -> None:
    assert re.findall(r"^## (\w+)$", MAKERS["commands.md"](), re.M) == list(read_commands())


def _source(path: str) -> str:
    return (DOCS.parent / path).read_text()


def _annotations(node: object) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_annotations, node))
    if not isinstance(node, dict):
        return set()
    inside = (_annotations(member) for name, member in node.items() if name not in ("examples", "default"))
    return {name for name in node if name.startswith("x-")}.union(*inside)


def _rules(module: ModuleType) -> Iterator[Rule]:
    """Rules in the tables of a module."""
    for table in vars(module).values():
        if isinstance(table, tuple | dict):
            members = table.values() if isinstance(table, dict) else table
            yield from (each for each in members if type(each) is Rule)


def _named(module: ast.Module) -> Iterator[str]:
    """Words with a hyphen that are passed to functions that report a fault."""
    calls = (node for node in walk(module) if isinstance(node, ast.Call))
    for call in calls:
        if getattr(call.func, "attr", getattr(call.func, "id", "")) in FAULTY:
            arguments = [*call.args[:4], *(each.value for each in call.keywords if each.arg == "rule")]
            texts = (each.value for each in arguments if isinstance(each, ast.Constant))
            yield from (text for text in texts if isinstance(text, str) and re.fullmatch("[a-z]+(-[a-z]+)+", text))
