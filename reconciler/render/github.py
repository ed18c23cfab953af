"""Findings as commands of a GitHub workflow, which shows each beside its line in the pull request."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.finding import Finding
from reconciler.printable import escape_text


def workflow_commands(findings: Iterable[Finding]) -> str:
    """Return a line ``::error file=…,line=…,col=…,title=RULE::message`` for each finding."""
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
