"""Findings as a code quality report, in the form that GitLab shows beside the lines of a merge request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from reconciler.model.finding import Finding, Severity
from reconciler.render.sarif import compute_fingerprint

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.NOTICE: "info"}


def build_report(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return an entry for each finding; one about a whole file is placed on line 1."""
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
