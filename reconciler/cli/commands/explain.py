"""`reconciler explain`: say what a rule asks for, and why."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import nearest
from reconciler.cli.output.printing import coloured
from reconciler.errors import NotFoundError
from reconciler.render.layout import paint

if TYPE_CHECKING:
    from reconciler.model.rule import Rule

WIDTH = 88
CONVERSIONS = "docs/convert.md"
"""The page with the rules of `convert` and `import`, which have no examples of their own."""
_COLOURS = {"error": "red", "warning": "yellow", "notice": "blue"}


@click.command(epilog="Example: reconciler explain readiness-missing")
@click.argument("rule")
def command(rule: str) -> None:
    """Explain what a rule requires and why, with manifests that break it and follow it.

    In the examples, a comment with an arrow marks the error: on its own line, or with ↓ on the next.
    """
    from reconciler.convert.rules import RULEBOOK
    from reconciler.rulebook import rulebook

    book = rulebook() | RULEBOOK
    if rule not in book:
        hint = nearest(rule, book) or "; `reconciler rules` lists them"
        raise NotFoundError(f"there is no rule {rule!r}{hint}")
    click.echo("\n".join(_lines(book[rule], coloured(sys.stdout))))


def _lines(rule: Rule, colour: bool) -> Iterator[str]:
    severity = paint(str(rule.severity), _COLOURS[rule.severity], colour)
    yield f"{paint(rule.id, 'bold', colour)} ({severity})"
    page = CONVERSIONS if rule.id.startswith(("convert-", "import-")) else rule.page
    yield from ("", *_wrap(rule.what), "", *_wrap(rule.why), "", f"  Source: {rule.source}; see {page}")
    if page != CONVERSIONS:
        yield from _examples(rule, colour)


def _examples(rule: Rule, colour: bool) -> Iterator[str]:
    from reconciler.cli.output.rule_examples import examples_of

    for paragraph in examples_of(rule.id):
        if paragraph.verbatim:
            yield from ("", *(f"    {line}".rstrip() for line in paragraph.text.split("\n")))
        elif paragraph.text.endswith(":"):
            yield from ("", paint(paragraph.text, "bold", colour))
        else:
            yield from ("", *_wrap(paragraph.text))


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
