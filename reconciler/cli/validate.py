"""`reconciler validate`: every fault of a revision, or of files as they lie there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.common import DEFAULT_ORG, load, load_or_none, org_option, records_or_none, settings_option
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.model.finding import Finding
    from reconciler.model.resource import Resource
    from reconciler.pipeline.folder import Checked


@click.command(epilog="Example: reconciler validate manifests/ --format json")
@click.argument("path", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--revision", metavar="REV", default="", help="A branch, tag or commit instead of the source's own.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@org_option
@settings_option
def command(settings_file: Path, path: Path | None, revision: str, form: str, org: str) -> int:
    """Check manifests and say every fault, with its place and what to do.

    With PATH, the files as they lie there, Git or not; no settings are needed then, and without them any location
    counts as known. Of a single file the files around it are read too, since it refers to them.
    Without PATH, the revision of every source in the settings. Only errors make the exit code 1.
    """
    from reconciler.cli.findings import counted, echo_json, findings_document, numbered, print_findings
    from reconciler.model.finding import has_errors

    if path is not None and revision:
        raise UsageError("--revision is for the sources in the settings; leave PATH out")
    if path is None and org:
        raise UsageError("--org is for a PATH; the settings say the org of their sources")
    checked = _sources(settings_file, revision) if path is None else _folder(path, settings_file, org)
    if form == "json":
        echo_json(findings_document(checked.findings, checked.documents, checked.resources))
    else:
        print_findings(checked.findings)
        seen = f"{numbered(checked.documents, 'document')}, {numbered(checked.resources, 'resource')}"
        click.echo(f"{counted(checked.findings)} in {seen}")
    return int(has_errors(checked.findings))


def _folder(path: Path, settings_file: Path, org: str) -> Checked:
    from reconciler.manifests.normal import Dialect
    from reconciler.pipeline.folder import check
    from reconciler.pipeline.view import Surroundings

    key = b"only looked at, never kept"
    settings = load_or_none(settings_file)
    if settings is None:
        return check(path, Dialect(org or DEFAULT_ORG, secret_key=key), Surroundings(unknown=True))
    around = Surroundings.of(settings, org)
    return check(path, Dialect(org or settings.org, settings.scheme, key), around)


def _sources(settings_file: Path, revision: str) -> Checked:
    from reconciler.clock import SystemClock
    from reconciler.pipeline.folder import Checked
    from reconciler.pipeline.line import Line

    settings = load(settings_file)
    records = records_or_none(settings)
    findings: list[Finding] = []
    seen: dict[str, str] = {}
    documents = 0
    for source in settings.sources:
        line = Line(settings, source, records, SystemClock())
        line.source.refresh()
        loaded = (prepared := line.prepare(revision, whole=True)).loaded
        documents += loaded.delta.documents
        findings += sorted([*prepared.findings, *_claimed(loaded.delta.added.values(), seen)])
        seen |= {key: f"{each.path}:{each.line} of source {source.name}" for key, each in loaded.delta.added.items()}
    return Checked(findings, documents, len(seen))


def _claimed(resources: Iterable[Resource], seen: Mapping[str, str]) -> Iterator[Finding]:
    """Resources that another source declares too; ``seen`` says where."""
    from reconciler.model.finding import Finding, Severity

    for each in resources:
        key = str(each.key)
        if key in seen:
            message = f"{key} is declared twice: here and at {seen[key]}"
            yield Finding(each.path, each.line, 1, "duplicate-resource", Severity.ERROR, message, "keep one of the two",
                          key)  # fmt: skip
