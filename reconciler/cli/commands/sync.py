"""`reconciler sync`: make the daemon run its sources now."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.options import example_of, load_settings_as_owner, select_sources, settings_option


@click.command(epilog=example_of("sync"))
@click.argument("source", required=False, default="")
@settings_option
def command(settings_file: Path, source: str) -> int:
    """Make the daemon fetch and run SOURCE, or all, now instead of at the next poll. Does not wait for the end.

    Without SOURCE the daemon also checks the locations for drift.
    """
    from reconciler.cli.output.printing import print_error
    from reconciler.daemon.wake import wake_daemon

    settings = load_settings_as_owner(settings_file)
    select_sources(settings, source)
    if wake_daemon(settings.state, source or None, "sync"):
        click.echo(f"the daemon runs {source or 'every source'} now; see: reconciler events --follow")
        return 0
    print_error("no daemon runs here; `reconciler apply` does one run without it")
    return 1
