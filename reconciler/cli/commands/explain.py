"""`reconciler explain`: show what a rule requires, and why."""

from __future__ import annotations

import sys

import click

from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text
from reconciler.terminal.folding import is_colour_terminal


@click.command(epilog="Example: reconciler explain readiness-missing")
@click.argument("rule")
@output_option()
def command(rule: str, output: Output) -> None:
    """Explain what a rule requires and why, with manifests that break it and follow it.

    In the examples, a comment with an arrow marks the error: on its own line, or with ↓ on the next.
    """
    from reconciler.queries.rules import explain_rule
    from reconciler.render.rules import rule_document, rule_lines

    explanation = explain_rule(rule)
    if output.is_text:
        echo_text("\n".join(rule_lines(*explanation, is_colour_terminal(sys.stdout))))
    else:
        print_document(output, rule_document(*explanation))
