"""Faults and findings: a problem, its place, and a suggestion."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """The severity of a finding; only an error refuses the revision."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


Pointer = tuple[str | int, ...]
"""The path to a value in a document: ``("spec", "containers", 0, "name")``."""


class Flaw(msgspec.Struct, frozen=True):
    """A breach that a rule finds in a document; its caller adds the rule's id and the line.

    ``at`` is the path to the value as written (``on_key``: to its key). ``also`` has further values on which the result
    depends: if one of them cannot be read, the flaw is dropped.
    """

    at: Pointer
    message: str
    suggestion: str = ""
    also: tuple[Pointer, ...] = ()
    on_key: bool = False


class Lookup(msgspec.Struct, frozen=True):
    """A rule's lookup of another resource: ``target`` is its key as text.

    ``at`` is the path to the value that refers to it; ``detail`` is passed on to the check of the result.
    """

    at: Pointer
    target: str
    detail: str = ""


class Fault(msgspec.Struct, frozen=True, gc=False):
    """A problem in one file; line and column count from 1, 0 means the whole file."""

    rule: str
    message: str
    line: int = 0
    column: int = 0
    suggestion: str = ""
    severity: Severity = Severity.ERROR
    key: str = ""


class Finding(msgspec.Struct, frozen=True, order=True, gc=False):
    """A fault and its file; ``path`` is relative to the source's root. Sorts by place."""

    path: str
    line: int
    column: int
    rule: str
    severity: Severity
    message: str
    suggestion: str = ""
    key: str = ""

    @classmethod
    def at(cls, path: str, fault: Fault) -> Finding:
        """``fault`` as found in the file ``path``."""
        return cls(
            path, fault.line, fault.column, fault.rule, fault.severity, fault.message, fault.suggestion, fault.key
        )


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether ``findings`` refuse the revision."""
    return any(finding.severity is Severity.ERROR for finding in findings)
