"""Every rule by its case files: a failing one has the finding at the marked line, a passing one has none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.rule_cases import CASES, Case, case_files, found_in, marks_of, text_of

FILES = case_files()
FAILING = [path for path in FILES if path.name.startswith("fails")]


def named(path: Path) -> str:
    """``port-blocked/fails.yaml``."""
    return str(path.relative_to(CASES))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_an_example_has_the_findings_that_its_marks_expect(path: Path, tmp_path: Path) -> None:
    case = Case.load(path)
    findings = found_in(case, tmp_path).findings
    expected = marks_of(case)
    with_column = {(mark.rule, mark.path, mark.line) for mark in expected if mark.column}
    notices = {mark.rule for mark in expected}
    reported = sorted(
        (
            finding.rule,
            finding.path,
            finding.line,
            finding.column if (finding.rule, finding.path, finding.line) in with_column else 0,
        )
        for finding in findings
        if finding.severity != "notice" or finding.rule in notices
    )
    assert reported == expected, [
        f"{finding.path}:{finding.line}:{finding.column} {finding.message}" for finding in findings
    ]
    rule = path.parent.name
    assert (rule in {finding.rule for finding in findings}) == path.name.startswith("fails")


@pytest.mark.parametrize("path", FAILING, ids=named)
def test_a_failing_example_has_the_expected_text(path: Path, tmp_path: Path) -> None:
    golden = path.with_suffix(".txt")
    text = text_of(Case.load(path), tmp_path)
    if os.environ.get("REWRITE_CASES"):
        golden.write_text(text)
    assert golden.read_text() == text


def test_every_rule_has_an_example_that_fails_and_one_that_passes() -> None:
    from reconciler.rulebook import load_rulebook

    found = {(path.parent.name, path.name.startswith("fails")) for path in FILES}
    assert {(rule, fails) for rule in load_rulebook() for fails in (True, False)} == found
