"""`reconciler describe`: show one resource or source in detail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load, parse_target, read_records, settings_option
from reconciler.cli.output.printing import coloured

if TYPE_CHECKING:
    from reconciler.model.key import Key


@click.command(epilog="Example: reconciler describe workload/shop/api")
@click.argument("key", callback=parse_target)
@settings_option
def command(settings_file: Path, key: Key | str) -> None:
    """Show all that is known about KEY: its fields, conditions, locations and last events.

    Keys look like workload/GVC/NAME, gvc/NAME and secret/NAME. For source/NAME it shows whether the newest commit is
    live, and if not, why.
    """
    from reconciler.queries.existence import source_of
    from reconciler.render.layout import section_text

    settings = load(settings_file)
    records = read_records(settings)
    on = coloured(sys.stdout)
    if isinstance(key, str):
        from reconciler.daemon.lock import holder
        from reconciler.queries.sources import describe_source
        from reconciler.render.sources import source_sections

        daemon_runs = holder(settings.state) is not None
        sections = source_sections(describe_source(settings, records, source_of(key), daemon_runs=daemon_runs), on)
    else:
        from reconciler.queries.resources import describe_resource
        from reconciler.render.resources import resource_sections

        sections = resource_sections(*describe_resource(settings, records, key), on)
    click.echo(section_text(sections, colour=on), nl=False)
