"""`reconciler rules`: list the rules that manifests are held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from reconciler.model.rule import Rule

SEVERITIES = ("error", "warning", "notice")


@click.command(epilog="Example: reconciler rules --severity warning")
@click.option("--severity", type=click.Choice(SEVERITIES), help="Only rules of this severity.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
def command(severity: str | None, form: str) -> None:
    """List the rules by subject, with what each requires.

    Only errors block a revision; the comment `# reconciler: ignore RULE reason` silences the others.
    `reconciler explain RULE` explains one rule.
    """
    from reconciler.rulebook import sections

    chosen = {
        title: sorted((rule for rule in rules if severity in (None, rule.severity)), key=lambda rule: rule.id)
        for title, rules in sections().items()
    }
    if form == "json":
        from reconciler.cli.output.printing import echo_json

        echo_json([_fields(rule, title) for title, rules in chosen.items() for rule in rules])
        return
    width = max((len(rule.id) for rules in chosen.values() for rule in rules), default=0)
    parts = (f"{title}\n{_table(rules, width)}" for title, rules in chosen.items() if rules)
    click.echo("\n".join(parts), nl=False)


def _table(rules: list[Rule], width: int) -> str:
    return "".join(f"  {rule.id:<{width}}  {rule.severity:<7}  {rule.what}\n" for rule in rules)


def _fields(rule: Rule, section: str) -> dict[str, str]:
    return {
        "rule": rule.id,
        "severity": rule.severity,
        "section": section,
        "what": rule.what,
        "why": rule.why,
        "source": rule.source,
        "page": rule.page,
    }
