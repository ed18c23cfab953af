"""`reconciler rules`: list the rules for manifests."""

from __future__ import annotations

import click

from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text

SEVERITIES = ("error", "warning", "notice")


@click.command(epilog="Example: reconciler rules --severity warning")
@click.option("--severity", type=click.Choice(SEVERITIES), help="Only rules of this severity.")
@output_option(has_alias=True)
def command(severity: str | None, output: Output) -> None:
    """List the rules by subject, with what each requires.

    Only errors block a revision; the comment `# reconciler: ignore RULE reason` silences the others.
    `reconciler explain RULE` explains one rule.
    """
    from reconciler.queries.rules import list_rules
    from reconciler.render.rules import rule_documents, rule_table

    chosen = list_rules(severity)
    if output.is_text:
        echo_text(rule_table(chosen), nl=False)
    else:
        print_document(output, rule_documents(chosen))
