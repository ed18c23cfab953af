"""Findings between resources: a bounded number for each file, whose lines are computed in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from reconciler.manifests.desired_state import FindingPositions, ResourceLocation
from reconciler.model.finding import Finding, Severity
from reconciler.model.resource import pointer_parts
from reconciler.printable import printable_finding

MOST_IN_FILE = 1_000
"""The maximum of errors between one file and others, and of warnings, which its comments can silence."""


class CrossFinding(NamedTuple):
    """A finding before its line is known: at ``pointer`` in the document at ``site``, None for the whole file."""

    site: ResourceLocation
    pointer: str | None
    rule: str
    severity: Severity
    message: str
    suggestion: str
    key: str


class CrossFindings:
    """Collects findings, up to a limit for each file."""

    def __init__(self, most: int = MOST_IN_FILE) -> None:
        self._most = most
        self._found: list[CrossFinding] = []
        self._counts: Counter[tuple[str, bool]] = Counter()
        self.any_full = False

    def is_full(self, path: str, severity: Severity) -> bool:
        """Whether the file at ``path`` has the maximum for ``severity``; ``any_full``: whether any file has."""
        return self.any_full and self._counts[path, severity is Severity.ERROR] > self._most

    def add(self, finding: CrossFinding) -> None:
        """Add ``finding``, or at the limit a finding about the limit."""
        path, severity = finding.site.path, finding.severity
        if self.is_full(path, severity):
            return
        is_error = severity is Severity.ERROR
        self._counts[path, is_error] += 1
        is_last = self._counts[path, is_error] > self._most
        self.any_full |= is_last
        self._found.append(_too_many(finding) if is_last else finding)

    def list_with_positions(self, positions: FindingPositions) -> Iterator[tuple[Finding, int]]:
        """Each finding with its line and column, and the line of the comment that silences it, 0 for none."""
        # In the order of the documents: each place before the last one parses the file again.
        for finding in sorted(self._found, key=lambda entry: (entry.site.path, entry.site.blob, entry.site.position)):
            yield _locate_finding(finding, positions)


def _too_many(finding: CrossFinding) -> CrossFinding:
    word = "errors" if finding.severity is Severity.ERROR else "warnings"
    message = f"this file has more than {MOST_IN_FILE:,} {word} between its resources and others; the rest is not shown"
    return finding._replace(rule="too-many-faults", message=message, suggestion="correct those above first")


def _locate_finding(finding: CrossFinding, positions: FindingPositions) -> tuple[Finding, int]:
    site, pointer, rule, severity, message, suggestion, key = finding
    line, column = (0, 0) if pointer is None else positions.position(site, pointer_parts(pointer))
    comment = 0 if severity is Severity.ERROR else positions.silenced_by(site, line, rule)
    return Finding(
        site.path, line, column, rule, severity, printable_finding(message), printable_finding(suggestion), key
    ), comment
