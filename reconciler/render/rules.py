"""Rules as a table, as JSON values, and one as text with its examples; fields of manifests as text and JSON values."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.documents.schema.fields import Field, describe_meaning, describe_values, list_fields
from reconciler.model.rule import Rule
from reconciler.render.layout import align_columns, paint_text

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


def field_lines(field: Field, colour: bool) -> Iterator[str]:
    """What a field takes and means, and a line for each field below it."""
    facts = [describe_values(field.schema)]
    facts += ["required"] if field.required else []
    facts += [f"default {json.dumps(field.schema['default'])}"] if "default" in field.schema else []
    yield f"{paint_text(field.path, 'bold', colour)}  {'; '.join(facts)}"
    yield f"  {describe_meaning(field.schema)}"
    yield f"  A change of it is of the class {field.change}."
    if examples := field.schema.get("examples"):
        yield f"  For example: {', '.join(map(json.dumps, examples))}"
    rows = [
        (f"{child.path.rpartition('.')[2]}{' *' if child.required else ''}", describe_meaning(child.schema))
        for child in list_fields(field)
    ]
    if rows:
        yield ""
        yield paint_text("Fields (* required)", "bold", colour)
        yield align_columns(rows, "  ")


def field_document(field: Field) -> dict[str, Any]:
    """A field as JSON values; ``fields`` are those below it."""
    return {
        **_build_field(field),
        "change": field.change,
        "default": field.schema.get("default"),
        "examples": field.schema.get("examples", []),
        "fields": [_build_field(child) for child in list_fields(field)],
    }


def _build_field(field: Field) -> dict[str, Any]:
    return {
        "field": field.path,
        "required": field.required,
        "values": describe_values(field.schema),
        "description": describe_meaning(field.schema),
    }
