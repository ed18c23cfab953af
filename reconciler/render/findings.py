"""Findings as text, Markdown and JSON."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reconciler.model.finding import Finding, Severity
from reconciler.model.rule import get_page_section
from reconciler.printable import code_span, escape_text
from reconciler.render.excerpt import Excerpts
from reconciler.render.layout import paint_text

_OF_FILE = re.compile(r"\b(reconciler (?:secret encrypt|convert) )FILE\b")
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTICE: "blue"}

MOST_ROWS = 200
"""The most rows, since forges cut long comments; further findings are only counted."""


def findings_text(findings: Iterable[Finding], excerpts: Excerpts, *, colour: bool = False) -> str:
    """Each finding as ``path:line:column: severity: message [rule]``, its line and its suggestion indented below it."""
    return "".join(f"{line}\n" for finding in findings for line in _format_finding_lines(finding, excerpts, colour))


def _format_finding_lines(finding: Finding, excerpts: Excerpts, colour: bool) -> Iterator[str]:
    shade = _COLOURS[finding.severity]
    where, severity = (
        paint_text(f"{format_place(finding)}:", "bold", colour),
        paint_text(str(finding.severity), shade, colour),
    )
    yield f"{where} {severity}: {escape_text(finding.message)} {paint_text(f'[{finding.rule}]', 'grey', colour)}"
    excerpt = excerpts.of(finding)
    if excerpt is not None:
        line, carets = excerpt
        yield f"{paint_text(f'{finding.line:>6} |', 'grey', colour)} {line}".rstrip()
        if carets:
            yield f"{paint_text('       |', 'grey', colour)} {paint_text(carets, shade, colour)}"
    if finding.suggestion:
        yield f"    {escape_text(_complete_commands(finding))}"


def _complete_commands(finding: Finding) -> str:
    """The suggestion, its commands on ``FILE`` with the path of the file, so that people can paste them.

    A text is decoded once for all files that have it, so its findings name none.
    """
    return _OF_FILE.sub(lambda command: command[1] + shlex.quote(finding.path), finding.suggestion)


def format_place(finding: Finding) -> str:
    """``shop/api.yaml:12:7``, or the path alone for a finding about the whole file."""
    path = escape_text(finding.path)
    # A workflow runner treats a line that begins like this as a command.
    path = f"./{path}" if path.startswith(("::", "##")) else path
    return f"{path}:{finding.line}:{finding.column}" if finding.line else path


def explain_hint(findings: Iterable[Finding]) -> str:
    """A line that points to the explanation of the rules of ``findings``; "" if there are none."""
    rules = {finding.rule for finding in findings}
    if not rules:
        return ""
    return f"Why, with examples: reconciler explain {rules.pop() if len(rules) == 1 else 'RULE'}\n"


def markdown_findings(findings: Sequence[Finding], heading: str) -> str:
    """Findings as a table under a heading, with the purpose of their rules."""
    lines = [
        f"### {heading}: {severity_counts(findings)}",
        "",
        "| where | severity | what | what to do | rule |",
        "|---|---|---|---|---|",
    ]
    for finding in findings[:MOST_ROWS]:
        place, what, todo = map(code_span, (format_place(finding), finding.message, finding.suggestion))
        lines.append(f"| {place} | {finding.severity} | {what} | {todo} | `{finding.rule}` |")
    if len(findings) > MOST_ROWS:
        lines += ["", f"… and {len(findings) - MOST_ROWS} more."]
    return "\n".join([*lines, *_render_rule_meanings(findings[:MOST_ROWS])]) + "\n"


def _render_rule_meanings(findings: Sequence[Finding]) -> Iterator[str]:
    """The purpose of the rules, folded below the table; their page has no address to link to."""
    from reconciler.rulebook import load_rulebook

    book = load_rulebook()
    rules = [book[name] for name in sorted({finding.rule for finding in findings}) if name in book]
    if rules:
        yield "\n<details><summary>What these rules are for</summary>\n"
        yield from (f"- `{rule.id}`: {rule.what} {rule.why} (`{rule.page}`)" for rule in rules)
        yield "\n</details>"


def severity_counts(findings: Iterable[Finding]) -> str:
    """``2 errors, 1 warning``, or ``no findings``."""
    counts = Counter(finding.severity for finding in findings)
    return (
        ", ".join(pluralize_noun(counts[severity], severity) for severity in Severity if counts[severity])
        or "no findings"
    )


def pluralize_noun(count: int, noun: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def findings_document(findings: Iterable[Finding], documents: int, resources: int) -> dict[str, Any]:
    """The findings object: findings in order of place, and the counts of what was checked."""
    return {
        "findings": [_build_finding_fields(finding) for finding in findings],
        "documents": documents,
        "resources": resources,
    }


def _build_finding_fields(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "message": finding.message,
        "suggestion": finding.suggestion,
        "key": finding.key,
        "page": get_page_section(finding.rule),
    }
