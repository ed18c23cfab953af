"""`reconciler diff`: what would change between two commits, from Git alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.common import coloured, load, settings_option
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.pipeline.compare import Compared
    from reconciler.settings import Settings, SourceSettings


FORMS = ("text", "json", "markdown")
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(epilog="Example: reconciler diff origin/main HEAD --format markdown")
@click.argument("rev1")
@click.argument("rev2")
@click.option(
    "--repo",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The repository; else the source's, else the one here.",
)
@click.option("--path", "below", metavar="DIR", default=".", help="Where in --repo the manifests are.")
@click.option("--source", "name", metavar="NAME", default="", help="The source in the settings; else the first.")
@click.option("--format", "form", type=click.Choice(FORMS), default="text", help="Default: text.")
@settings_option
def command(settings_file: Path, rev1: str, rev2: str, repo: Path | None, below: str, name: str, form: str) -> int:
    """Show what would change between the commits REV1 and REV2, as if REV1 were applied.

    Needs neither records nor settings, so a pull request's CI can show it. Exits with 1 where REV2 has errors.
    """
    from reconciler.pipeline.compare import compare

    settings, source = _source(settings_file, repo, below, name)
    compared = compare(settings, source, rev1, rev2)
    _show(compared, form)
    return int(compared.plan is None)


def _source(settings_file: Path, repo: Path | None, below: str, name: str) -> tuple[Settings, SourceSettings]:
    from reconciler.settings import Settings, SourceSettings

    if repo is None and settings_file.exists():
        settings = load(settings_file)
        found = next((source for source in settings.sources if name in ("", source.name)), None)
        if found is None:
            raise UsageError(f"there is no source {name!r} in {settings_file}")
        return settings, found
    here = SourceSettings(name=name or "here", url=str((repo or _repository()).resolve()), path=below)
    return Settings(org="", sources=(here,)), here


def _repository() -> Path:
    """The repository that the current directory is in."""
    here = Path.cwd()
    found = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
    if found is None:
        raise UsageError(f"{here} is not in a Git repository; name one with --repo")
    return found


def _show(compared: Compared, form: str) -> None:
    from reconciler.cli.findings import counted, echo_json, print_document, print_findings
    from reconciler.planning.document import document
    from reconciler.planning.markdown import markdown
    from reconciler.planning.render import text

    plan = compared.plan
    if plan is None and form == "json":
        print_document(compared.findings, 0, 0)
    elif plan is None:
        print_findings(compared.findings)
        click.echo(f"refused: {counted(compared.findings)}")
    elif form == "json":
        echo_json(document(plan))
    else:
        shown = markdown(plan) if form == "markdown" else text(plan, colour=coloured(sys.stdout))
        click.echo(shown, nl=False)
