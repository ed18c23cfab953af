"""`reconciler settings`: write settings to begin with, and check settings."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.options import org_option, settings_option
from reconciler.cli.output.printing import echo_text
from reconciler.errors import RefusedError, UsageError


@click.group(epilog="Example: reconciler settings init --out settings.yaml")
def command() -> None:
    """Write settings for a service, and check settings.

    `reconciler up` writes its own; a service has one file, /etc/reconciler/settings.yaml. The page settings.md has all
    settings.
    """


@command.command(
    short_help="Write the settings that `up` uses.", epilog="Example: reconciler settings init . --out settings.yaml"
)
@click.argument("source", metavar="[DIR|URL]", default=".")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Write to FILE; else to standard output.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@org_option
def init(source: str, out: Path | None, force: bool, org: str) -> None:
    """Write the settings with which a service runs what `up` runs for DIR or URL.

    Those that `up` wrote, where it was called there, else those that it would write; with the state directory of the
    service. `reconciler install --settings FILE` takes them.
    """
    from reconciler.cli.service.settings import render_service_settings

    text = render_service_settings(source, org)
    if out is None:
        click.echo(text, nl=False)
        return
    if out.exists() and not force:
        raise RefusedError(f"{out} would be overwritten; --force does so")
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}") from None
    echo_text(f"{out} is written. Next, as root: reconciler install --settings {out}")


@command.command(short_help="Check settings.", epilog="Example: reconciler settings validate settings.yaml")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@settings_option
def validate(settings_file: Path, file: Path | None) -> None:
    """Check the settings in FILE, or those that commands use here, and report every error with its place.

    Exits with 2 where there is one, as every command does with such settings.
    """
    from reconciler.render.findings import pluralize_noun
    from reconciler.settings import load_settings

    path = file or settings_file
    settings = load_settings(path)  # the state directory is not opened
    sources, locations = len(settings.sources), len(settings.locations)
    counted = f"{pluralize_noun(sources, 'source')}, {pluralize_noun(locations, 'location')}"
    echo_text(f"{path} is valid: {counted}, state in {settings.state}")
