"""`reconciler get`: list resources and their status."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load, read_records, settings_option
from reconciler.cli.output.printing import coloured

if TYPE_CHECKING:
    from reconciler.model.key import Kind


@click.command(epilog="Example: reconciler get workload api --gvc shop -o yaml")
@click.argument("kind", required=False)
@click.argument("name", required=False)
@click.option("--gvc", metavar="G", help="Only resources of this GVC.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Default: text.")
@settings_option
def command(settings_file: Path, kind: str | None, name: str | None, gvc: str | None, output: str) -> None:
    """Show the records: all resources, those of KIND, or the one called NAME.

    It shows what was last applied and its last known status; secret data shows as ***. A source whose newest revision
    is refused or cannot be read, or that is rolled back or suspended, has a line on standard error; JSON has all
    sources below `sources`. The exit code does not depend on the status of resources.
    """
    from reconciler.queries.resources import find_resources, list_sources
    from reconciler.render.layout import strip_control
    from reconciler.render.resources import resource_table, resources_json, resources_yaml
    from reconciler.render.sources import source_lines

    wanted = _kind(kind)
    settings = load(settings_file)
    records = read_records(settings)
    found, sources = find_resources(settings, records, wanted, gvc, name), list_sources(settings, records)
    if output != "text":
        for part in (resources_json if output == "json" else resources_yaml)(found, sources):
            click.echo(part, nl=False)
        return
    table = resource_table(found, coloured(sys.stdout))
    click.echo(table or "nothing is recorded", err=not table)
    for line in (line for source in sources for line in source_lines(source)):
        click.echo(strip_control(line), err=True)


def _kind(text: str | None) -> Kind | None:
    """The kind called ``text``; raises click's UsageError that names the nearest."""
    from reconciler.model.key import KINDS
    from reconciler.queries.existence import did_you_mean

    if text is None or text in KINDS:
        return None if text is None else KINDS[text]
    raise click.UsageError(f"there is no kind {text!r}{did_you_mean(text, KINDS)}")
