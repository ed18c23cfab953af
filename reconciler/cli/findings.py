"""Findings as people read them, and as programs do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from reconciler.cli.common import coloured, paint
from reconciler.model.finding import Finding, Severity
from reconciler.pipeline.report import place

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTICE: "blue"}

MOST_ROWS = 200
"""Forges cut long comments; of findings beyond as many only the count is given."""


def print_findings(findings: Sequence[Finding]) -> None:
    """The findings on stdout, as ``findings_text`` puts them."""
    click.echo(findings_text(findings), nl=False)


def findings_text(findings: Sequence[Finding]) -> str:
    """Each finding as ``path:line:column: severity: message [rule]``, its suggestion indented below it."""
    colour = coloured(sys.stdout)
    return "".join(_told(finding, colour) for finding in findings)


def markdown_findings(findings: Sequence[Finding], heading: str) -> str:
    """Why a revision is refused, or files of it are left out, as the comment on a pull request."""
    from reconciler.planning.markdown import code

    lines = [f"### {heading}: {counted(findings)}", "", "| where | severity | what | what to do |", "|---|---|---|---|"]
    lines += [
        f"| {code(place(each))} | {each.severity} | {code(each.message)} | {code(each.suggestion)} |"
        for each in findings[:MOST_ROWS]
    ]
    if len(findings) > MOST_ROWS:
        lines += ["", f"… and {len(findings) - MOST_ROWS} more."]
    return "\n".join(lines) + "\n"


def _told(finding: Finding, colour: bool) -> str:
    where = paint(f"{place(finding)}:", "bold", colour)
    severity = paint(str(finding.severity), _COLOURS[finding.severity], colour)
    told = f"{where} {severity}: {finding.message} {paint(f'[{finding.rule}]', 'grey', colour)}"
    return f"{told}\n    {finding.suggestion}\n" if finding.suggestion else f"{told}\n"


def counted(findings: Sequence[Finding]) -> str:
    """``2 errors, 1 warning``, or ``no findings``."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(numbered(counts[each], each) for each in Severity if counts[each]) or "no findings"


def numbered(count: int, noun: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def findings_document(findings: Sequence[Finding], documents: int, resources: int) -> dict[str, Any]:
    """The findings object: findings in order of place, and how much was looked at."""
    return {"findings": [_fields(finding) for finding in findings], "documents": documents, "resources": resources}


def _fields(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "message": finding.message,
        "suggestion": finding.suggestion,
        "key": finding.key,
    }


def echo_json(value: object) -> None:
    """``value`` as indented JSON on stdout."""
    click.echo(as_json(value).decode())


def as_json(value: object) -> bytes:
    """``value`` as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2)
