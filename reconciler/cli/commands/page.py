"""`reconciler page`: print a link that opens the page."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.options import load_settings_as_owner, settings_option


@click.command(epilog="Example: reconciler page")
@settings_option
def command(settings_file: Path) -> int:
    """Print a link to the page that logs you in once, within 10 minutes.

    The page shows what waits for you, what is not well and why, and what changed last. It is at the address of the
    API in the settings. A daemon has to run here.
    """
    from reconciler.cli.page_links import make_link

    click.echo(make_link(load_settings_as_owner(settings_file)))
    return 0
