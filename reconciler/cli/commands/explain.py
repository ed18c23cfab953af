"""`reconciler explain`: show what a rule requires and why, or what a field takes."""

from __future__ import annotations

import sys

import click

from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text
from reconciler.terminal.folding import is_colour_terminal


@click.command(epilog="Example: reconciler explain readiness-missing")
@click.argument("name", metavar="RULE|FIELD")
@output_option()
def command(name: str, output: Output) -> None:
    """Explain what a rule requires and why, with manifests that break it and follow it.

    In the examples, a comment with an arrow marks the error: on its own line, or with ↓ on the next. A FIELD begins
    with its kind, as in workload.spec.containers.image: what it takes and means, and which fields are below it.
    """
    from reconciler.queries.fields import is_field_path

    if is_field_path(name):
        _explain_field(name, output)
    else:
        _explain_rule(name, output)


def _explain_field(path: str, output: Output) -> None:
    from reconciler.queries.fields import find_field
    from reconciler.render.rules import field_document, field_lines

    field = find_field(path)
    if output.is_text:
        echo_text("\n".join(field_lines(field, is_colour_terminal(sys.stdout))))
    else:
        print_document(output, field_document(field))


def _explain_rule(rule: str, output: Output) -> None:
    from reconciler.queries.rules import explain_rule
    from reconciler.render.rules import rule_document, rule_lines

    explanation = explain_rule(rule)
    if output.is_text:
        echo_text("\n".join(rule_lines(*explanation, is_colour_terminal(sys.stdout))))
    else:
        print_document(output, rule_document(*explanation))
