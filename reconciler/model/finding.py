"""Faults and findings: what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec


class Severity(StrEnum):
    """How bad a finding is; only an error refuses the revision."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


Pointer = tuple[str | int, ...]
"""The steps that lead to a value of a document: ``("spec", "containers", 0, "name")``."""


class Flaw(NamedTuple):
    """What a rule finds in a document; its caller adds the rule's id and the line.

    ``at`` leads to the value as it is written (``on_key``: to its key). ``also`` leads to further values that the
    verdict depends on: it is dropped where one of them could not be read.
    """

    at: Pointer
    message: str
    suggestion: str = ""
    also: tuple[Pointer, ...] = ()
    on_key: bool = False


class Lookup(NamedTuple):
    """A question of a rule about another resource: ``target`` is its key as text.

    ``at`` leads to the value that the answer concerns; ``detail`` is passed on to the check of the answer.
    """

    at: Pointer
    target: str
    detail: str = ""


class Fault(msgspec.Struct, frozen=True, gc=False):
    """Something wrong in one file; line and column count from 1, 0 means the whole file."""

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
