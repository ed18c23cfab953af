"""Findings in the forms that forges show beside the lines of a change: GitHub's commands, GitLab's report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from reconciler.model.finding import Finding, Severity
from reconciler.printable import escape_text
from reconciler.render.sarif import compute_fingerprint

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.NOTICE: "info"}
"""The severity of a finding → the one of a code quality report of GitLab."""


def workflow_commands(findings: Iterable[Finding]) -> str:
    """Return a command of a GitHub workflow ``::error file=…,line=…,col=…,title=RULE::message`` for each finding."""
    return "".join(f"{_format_workflow_command(finding)}\n" for finding in findings)


def _format_workflow_command(finding: Finding) -> str:
    position = {"line": finding.line, "col": finding.column} if finding.line else {}
    properties = {"file": finding.path, **position, "title": finding.rule}
    written = ",".join(f"{name}={_escape_property(str(value))}" for name, value in properties.items())
    words = f"{finding.message}\n{finding.suggestion}" if finding.suggestion else finding.message
    return f"::{finding.severity} {written}::{_escape_message(words)}"


def _escape_message(text: str) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace("##[", "%23%23[")
    return escape_text(text)


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")


def build_report(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return an entry of a code quality report for each finding; one about a whole file is placed on line 1."""
    seen: Counter[str] = Counter()
    return [
        {
            "description": f"{finding.message}; {finding.suggestion}" if finding.suggestion else finding.message,
            "check_name": finding.rule,
            "fingerprint": compute_fingerprint(finding, seen),
            "severity": _SEVERITIES[finding.severity],
            "location": {"path": finding.path, "lines": {"begin": max(finding.line, 1)}},
        }
        for finding in findings
    ]
