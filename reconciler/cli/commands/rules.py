"""`reconciler rules`: list the rules for manifests."""

from __future__ import annotations

import click

SEVERITIES = ("error", "warning", "notice")


@click.command(epilog="Example: reconciler rules --severity warning")
@click.option("--severity", type=click.Choice(SEVERITIES), help="Only rules of this severity.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
def command(severity: str | None, form: str) -> None:
    """List the rules by subject, with what each requires.

    Only errors block a revision; the comment `# reconciler: ignore RULE reason` silences the others.
    `reconciler explain RULE` explains one rule.
    """
    from reconciler.cli.output.printing import echo_json
    from reconciler.queries.rules import list_rules
    from reconciler.render.rules import rule_documents, rule_table

    chosen = list_rules(severity)
    if form == "json":
        echo_json(rule_documents(chosen))
    else:
        click.echo(rule_table(chosen), nl=False)
