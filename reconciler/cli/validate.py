"""`reconciler validate`: every fault of a revision, or of files as they lie there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.common import load, records_or_none, settings_option
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.pipeline.folder import Checked
    from reconciler.settings import Settings


@click.command(epilog="Example: reconciler validate manifests/ --format json")
@click.argument("path", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--revision", metavar="REV", default="", help="A branch, tag or commit instead of the source's own.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@settings_option
def command(settings_file: Path, path: Path | None, revision: str, form: str) -> int:
    """Check manifests and say every fault, with its place and what to do.

    With PATH, the files as they lie there, Git or not; no settings are needed then, and locations count as known.
    Without, the revision of every source in the settings. Only errors make the exit code 1.
    """
    from reconciler.cli.findings import counted, print_document, print_findings
    from reconciler.model.finding import has_errors

    if path is not None and revision:
        raise UsageError("--revision is for the sources in the settings; leave PATH out")
    settings = load(settings_file) if path is None or settings_file.exists() else None
    checked = _folder(path, settings) if path is not None else _sources(settings, revision)
    if form == "json":
        print_document(checked.findings, checked.documents, checked.resources)
    else:
        print_findings(checked.findings)
        click.echo(f"{counted(checked.findings)} in {checked.documents} documents, {checked.resources} resources")
    return int(has_errors(checked.findings))


def _folder(path: Path, settings: Settings | None) -> Checked:
    from reconciler.manifests.normal import Dialect
    from reconciler.pipeline.folder import check_folder
    from reconciler.pipeline.view import Surroundings

    key = b"only looked at, never kept"
    if settings is None:
        return check_folder(path, Dialect("", secret_key=key), Surroundings(unknown=True))
    around = Surroundings.of(tuple(settings.locations), settings.external, settings.org)
    return check_folder(path, Dialect(settings.org, settings.scheme, key), around)


def _sources(settings: Settings | None, revision: str) -> Checked:
    from reconciler.clock import SystemClock
    from reconciler.pipeline.folder import Checked
    from reconciler.pipeline.line import Line

    assert settings is not None
    records = records_or_none(settings)
    findings, documents, resources = [], 0, 0
    for source in settings.sources:
        line = Line(settings, source, records, SystemClock())
        line.source.refresh()
        prepared = line.prepare(revision, whole=True)
        findings += prepared.findings
        documents += prepared.loaded.delta.documents
        resources += len(prepared.loaded.delta.added)
    return Checked(findings, documents, resources)
