"""What the API refuses, and the places of the faults of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from reconciler.errors import ReconcilerError

if TYPE_CHECKING:
    from reconciler.platform_cli.documents import Input

_NOT_FOUND = 404
UNUSABLE = (0, 401)
"""Statuses of errors that every other request would have too: no answer, and no valid credential."""


class ApiError(ReconcilerError):
    """The API refuses a request, or does not answer; ``status`` is 0 then. ``code`` is that of OAuth 2.0, else "".

    ``findings`` are the faults of a refused change.
    """

    def __init__(
        self, message: str, status: int = 0, code: str = "", findings: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.findings = findings

    @property
    def is_missing(self) -> bool:
        """Whether the resource does not exist."""
        return self.status == _NOT_FOUND

    def within(self, source: Input, key: str) -> ApiError:
        """This error, its findings about the resource ``key`` at their places in ``source``."""
        if not self.findings:
            return self
        # In Git, the folder of a manifest can decide its GVC; findings in such a file have no key.
        places = [
            source.place_of(finding["field"]) if finding.get("key") in ("", key) and "field" in finding else ""
            for finding in self.findings
        ]
        return refused_change(self.findings, self.status, places)


def findings_of(details: Any) -> list[Mapping[str, Any]]:
    """The findings of a refused change; none if ``details`` are others."""
    entries = details if isinstance(details, list) else []
    return [
        value
        for value in entries
        if isinstance(value, dict) and {"path", "line", "column", "message", "rule"} <= value.keys()
    ]


def refused_change(findings: Sequence[Mapping[str, Any]], status: int, places: Sequence[str] = ()) -> ApiError:
    """The error for a change with ``findings``: a line each with its place, rule and advice.

    ``places`` are those that are known here; one that is missing or "" is that of the server.
    """
    lines = ["the change is refused:"]
    for finding, position in zip_longest(findings, places):
        shown = position or f"{finding['path']}:{finding['line']}:{finding['column']}"
        lines.append(f"  {shown}: {finding['message']} [{finding['rule']}]")
        lines += [f"    {finding['suggestion']}"] if finding.get("suggestion") else []
    return ApiError("\n".join(lines), status, findings=findings)
