"""Findings as people read them, and as programs do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import click
import msgspec

from reconciler.cli.common import coloured, paint
from reconciler.model.finding import Finding, Severity

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTICE: "blue"}


def print_findings(findings: Sequence[Finding]) -> None:
    """One finding a line as ``path:line:column: severity: message [rule]``, its suggestion below it, then the count."""
    colour = coloured(sys.stdout)
    for finding in findings:
        place = paint(f"{finding.path}:{finding.line}:{finding.column}:", "bold", colour)
        severity = paint(str(finding.severity), _COLOURS[finding.severity], colour)
        click.echo(f"{place} {severity}: {finding.message} {paint(f'[{finding.rule}]', 'grey', colour)}")
        if finding.suggestion:
            click.echo(f"    {finding.suggestion}")


def counted(findings: Sequence[Finding]) -> str:
    """``2 errors, 1 warning``, or ``no findings``."""
    counts = Counter(finding.severity for finding in findings)
    parts = [f"{counts[each]} {each}{'s' if counts[each] > 1 else ''}" for each in Severity if counts[each]]
    return ", ".join(parts) or "no findings"


def print_document(findings: Sequence[Finding], documents: int, resources: int) -> None:
    """The findings object: findings in order of place, and how much was looked at."""
    shown = [msgspec.to_builtins(finding) for finding in findings]
    echo_json({"findings": shown, "documents": documents, "resources": resources})


def echo_json(value: object) -> None:
    """``value`` as indented JSON on stdout."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
