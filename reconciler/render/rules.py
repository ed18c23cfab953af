"""Rules as a table, as JSON values, and one as text with its examples."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.model.rule import Rule
from reconciler.render.layout import paint_text

WIDTH = 88
_COLOURS = {"error": "red", "warning": "yellow", "notice": "blue"}


class Paragraph(NamedTuple):
    """A line of text, or with ``verbatim`` the lines of a file or an output."""

    text: str
    verbatim: bool


def rule_table(chosen: Mapping[str, Sequence[Rule]]) -> str:
    """The rules below the titles of their sections; a section without rules is left out."""
    width = max((len(rule.id) for rules in chosen.values() for rule in rules), default=0)
    return "\n".join(f"{title}\n{_format_rules_table(rules, width)}" for title, rules in chosen.items() if rules)


def rule_documents(chosen: Mapping[str, Sequence[Rule]]) -> list[dict[str, str]]:
    """The rules as JSON values, each with its section."""
    return [
        {
            "rule": rule.id,
            "severity": rule.severity,
            "section": title,
            "what": rule.what,
            "why": rule.why,
            "source": rule.source,
            "page": rule.page,
        }
        for title, rules in chosen.items()
        for rule in rules
    ]


def rule_document(rule: Rule, page: str, examples: Iterable[Paragraph]) -> dict[str, Any]:
    """``rule`` as JSON values, with the texts and files of its ``examples``."""
    return {
        "rule": rule.id,
        "severity": rule.severity,
        "what": rule.what,
        "why": rule.why,
        "source": rule.source,
        "page": page,
        "examples": [{"text": paragraph.text, "verbatim": paragraph.verbatim} for paragraph in examples],
    }


def rule_lines(rule: Rule, page: str, examples: Iterable[Paragraph], colour: bool) -> Iterator[str]:
    """What ``rule`` requires and why, the page that describes it, and its examples."""
    severity = paint_text(str(rule.severity), _COLOURS[rule.severity], colour)
    yield f"{paint_text(rule.id, 'bold', colour)} ({severity})"
    yield from ("", *_wrap_text(rule.what), "", *_wrap_text(rule.why), "", f"  Source: {rule.source}; see {page}")
    for paragraph in examples:
        if paragraph.verbatim:
            yield from ("", *(f"    {line}".rstrip() for line in paragraph.text.split("\n")))
        elif paragraph.text.endswith(":"):
            yield from ("", paint_text(paragraph.text, "bold", colour))
        else:
            yield from ("", *_wrap_text(paragraph.text))


def _format_rules_table(rules: Iterable[Rule], width: int) -> str:
    return "".join(f"  {rule.id:<{width}}  {rule.severity:<7}  {rule.what}\n" for rule in rules)


def _wrap_text(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
