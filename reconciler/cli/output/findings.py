"""Findings as text, Markdown and JSON."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from reconciler.cli.options import coloured, paint
from reconciler.cli.output.excerpt import Excerpts
from reconciler.model.finding import Finding, Severity, has_errors
from reconciler.model.rule import page
from reconciler.pipeline.report import place
from reconciler.printable import code_span, printable, printable_json

if TYPE_CHECKING:
    from reconciler.planning.blame import Blames
    from reconciler.planning.plan import Plan

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTICE: "blue"}

MOST_ROWS = 200
"""Limit of rows, since forges cut long comments; for further findings only the count is shown."""


def print_findings(findings: Sequence[Finding], excerpts: Excerpts, stream: TextIO | None = None) -> None:
    """Print ``findings_text`` on ``stream``, else on stdout."""
    out = stream or sys.stdout
    click.echo(findings_text(findings, excerpts, colour=coloured(out)), nl=False, file=out)


def findings_text(findings: Iterable[Finding], excerpts: Excerpts, *, colour: bool = False) -> str:
    """Each finding as ``path:line:column: severity: message [rule]``, its line and its suggestion indented below it."""
    return "".join(f"{line}\n" for finding in findings for line in _lines(finding, excerpts, colour))


def _lines(finding: Finding, excerpts: Excerpts, colour: bool) -> Iterator[str]:
    shade = _COLOURS[finding.severity]
    where, severity = paint(f"{place(finding)}:", "bold", colour), paint(str(finding.severity), shade, colour)
    yield f"{where} {severity}: {printable(finding.message)} {paint(f'[{finding.rule}]', 'grey', colour)}"
    excerpt = excerpts.of(finding)
    if excerpt is not None:
        line, carets = excerpt
        yield f"{paint(f'{finding.line:>6} |', 'grey', colour)} {line}".rstrip()
        if carets:
            yield f"{paint('       |', 'grey', colour)} {paint(carets, shade, colour)}"
    if finding.suggestion:
        yield f"    {printable(finding.suggestion)}"


def more(findings: Iterable[Finding]) -> str:
    """A line that points to the explanation of the rules of ``findings``; "" where there are none."""
    rules = {finding.rule for finding in findings}
    if not rules:
        return ""
    return f"Why, with examples: reconciler explain {rules.pop() if len(rules) == 1 else 'RULE'}\n"


def markdown_plan(plan: Plan | None, findings: Sequence[Finding], blames: Blames | None = None, since: str = "") -> str:
    """A plan (None: refused) as the comment on a pull request, with the findings below it."""
    from reconciler.render.markdown import markdown

    if plan is None:
        return markdown_findings(findings, "Refused")
    if all(finding.severity is Severity.NOTICE for finding in findings):
        return markdown(plan, blames, since)
    heading = "Left out" if has_errors(findings) else "Worth a look"
    return f"{markdown(plan, blames, since)}\n{markdown_findings(findings, heading)}"


def markdown_findings(findings: Sequence[Finding], heading: str) -> str:
    """Findings as a table under a heading, with the purpose of their rules."""
    lines = [f"### {heading}: {counted(findings)}", "", "| where | severity | what | what to do | rule |",
             "|---|---|---|---|---|"]  # fmt: skip
    lines += [
        f"| {code_span(place(each))} | {each.severity} | {code_span(each.message)} | {code_span(each.suggestion)} "
        f"| `{each.rule}` |"
        for each in findings[:MOST_ROWS]
    ]
    if len(findings) > MOST_ROWS:
        lines += ["", f"… and {len(findings) - MOST_ROWS} more."]
    return "\n".join([*lines, *_meanings(findings[:MOST_ROWS])]) + "\n"


def _meanings(findings: Sequence[Finding]) -> Iterator[str]:
    """The purpose of the rules, folded below the table; their page has no address to link to."""
    from reconciler.rulebook import rulebook

    book = rulebook()
    rules = [book[name] for name in sorted({finding.rule for finding in findings}) if name in book]
    if rules:
        yield "\n<details><summary>What these rules are for</summary>\n"
        yield from (f"- `{rule.id}`: {rule.what} {rule.why} (`{rule.page}`)" for rule in rules)
        yield "\n</details>"


def counted(findings: Iterable[Finding]) -> str:
    """``2 errors, 1 warning``, or ``no findings``."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(numbered(counts[each], each) for each in Severity if counts[each]) or "no findings"


def numbered(count: int, noun: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def findings_document(findings: Iterable[Finding], documents: int, resources: int) -> dict[str, Any]:
    """The findings object: findings in order of place, and the counts of what was checked."""
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
        "page": page(finding.rule),
    }


def echo_json(value: object) -> None:
    """Print ``value`` as indented JSON on stdout."""
    click.echo(as_json(value).decode())


def as_json(value: object) -> bytes:
    """``value`` as indented JSON."""
    return printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()).encode()
