"""`reconciler rules` lists the rules, `reconciler explain` shows one in full."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler.documents.schema.fields import list_fields
from reconciler.model.key import KINDS
from reconciler.queries.fields import find_field
from reconciler.render.rules import field_lines
from reconciler.rulebook import load_rulebook
from tests.support.command_sandbox import CommandResult, golden, here


def run(path: Path, *words: str) -> CommandResult:
    """Without any settings."""
    result = here(*words, cwd=path, RECONCILER_SETTINGS=str(path / "none.yaml"))
    assert result.err == "" or result.code
    return result


def test_every_rule_is_listed_with_its_severity(tmp_path: Path) -> None:
    lines = [line.split() for line in run(tmp_path, "rules").out.splitlines() if line.startswith("  ")]
    assert {(words[0], words[1]) for words in lines} == {(rule.id, rule.severity) for rule in load_rulebook().values()}


@pytest.mark.parametrize("severity", ["error", "warning", "notice"])
def test_rules_of_one_severity_are_listed_alone(tmp_path: Path, severity: str) -> None:
    listed = run(tmp_path, "rules", "--severity", severity, "--format", "json").json
    assert {rule["rule"] for rule in listed} == {
        rule.id for rule in load_rulebook().values() if rule.severity == severity
    }
    assert listed


def test_the_document_has_exactly_these_fields(tmp_path: Path) -> None:
    listed = run(tmp_path, "rules", "--format", "json").json
    names = ["rule", "severity", "section", "what", "why", "source", "page"]
    assert all(list(rule) == names for rule in listed)
    assert next(rule for rule in listed if rule["rule"] == "tab")["page"] == "docs/rules.md#tab"


def test_a_rule_is_explained_with_its_examples(tmp_path: Path) -> None:
    golden("explain.txt", run(tmp_path, "explain", "duplicate-key").out)


@pytest.mark.parametrize("rule", sorted(load_rulebook()))
def test_every_rule_can_be_explained(tmp_path: Path, rule: str) -> None:
    result = run(tmp_path, "explain", rule)
    assert result.code == 0
    assert f"[{rule}]" in result.out
    assert re.findall(r"^(\w.*):$", result.out, re.M) == ["Breaks the rule", "Output", "Follows the rule"]
    assert not re.search(r"^ *(files|before|expect|host): *$|\{repeat: |# [←↓].*:\d", result.out, re.M)
    assert all(char.isprintable() or char in "\n\t" for char in result.out)


def test_the_nearest_rule_is_named_where_there_is_none(tmp_path: Path) -> None:
    result = run(tmp_path, "explain", "readines-missing")
    assert (result.code, result.out) == (1, "")
    assert result.err == "error: there is no rule 'readines-missing'; did you mean readiness-missing?\n"


def test_the_rules_of_conversions_are_explained_too(tmp_path: Path) -> None:
    result = here("explain", "convert-duplicate", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert "A resource occurs once." in result.out
    assert result.out.endswith("see docs/convert.md\n")


def test_a_field_is_explained_with_what_is_below_it(tmp_path: Path) -> None:
    golden("explain-field.txt", run(tmp_path, "explain", "workload.spec.containers").out)
    for path in ("workload", "wl.spec.containers[0].ports.number", "gvc.spec.staticPlacement"):
        document = run(tmp_path, "explain", path, "-o", "json").json
        assert document["description"]
        assert document["field"].split(".")[1:] == path.replace("[0]", "").split(".")[1:]
    number = run(tmp_path, "explain", "workload.spec.containers.ports.number", "-o", "json").json
    assert (number["required"], number["values"], number["fields"]) == (True, "whole number; 1 to 65535", [])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_field_of_a_kind_can_be_explained(kind: str) -> None:
    fields = [find_field(kind)]
    while fields:
        field = fields.pop()
        assert find_field(field.path).schema is field.schema
        assert all(isinstance(line, str) for line in field_lines(field, colour=False))
        fields += list_fields(field)


def test_a_field_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    refused = here("explain", "workload.spec.container", cwd=tmp_path)
    assert (refused.code, refused.err) == (
        1,
        "error: workload.spec has no field 'container'; did you mean containers?\n",
    )
    below = here("explain", "workload.name.x", cwd=tmp_path)
    assert (below.code, below.err) == (1, "error: workload.name has no field 'x'; it has no fields\n")
