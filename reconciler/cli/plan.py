"""`reconciler plan`: what a run would do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.common import coloured, load, records_or_none, settings_option
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.pipeline.line import Prepared
    from reconciler.settings import Settings, SourceSettings

FORMS = ("text", "json", "markdown")
CHANGES = 3
"""Exit code of --detailed-exitcode where there is something to do."""


@click.command(epilog="Example: reconciler plan --revision feature --format markdown")
@click.option("--revision", metavar="REV", default="", help="A branch, tag or commit instead of the source's own.")
@click.option("--source", "name", metavar="NAME", default="", help="Only this source.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", help="Default: text."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the plan to FILE as JSON too.")
@click.option("--detailed-exitcode", is_flag=True, help=f"Exit with {CHANGES} where there is something to do.")
@settings_option
def command(settings_file: Path, revision: str, name: str, form: str, out: Path | None, detailed_exitcode: bool) -> int:
    """Show what a run would do to make the revision so. Changes nothing.

    Deletes beyond the budget, and all that delete volumes, wait for `reconciler approve DIGEST`.
    """
    settings = load(settings_file)
    prepared = [_prepared(settings, source, revision) for source in _chosen(settings, name)]
    found = [_document(each) for each in prepared]
    document = found[0] if len(found) == 1 else found
    if out is not None:
        _write(out, document)
    if form == "json":
        from reconciler.cli.findings import echo_json

        echo_json(document)
    else:
        for each in prepared:
            _show(each, form)
    if any(each.plan is None for each in prepared):
        return 1
    return CHANGES if detailed_exitcode and any(each.plan and each.plan.steps for each in prepared) else 0


def _chosen(settings: Settings, name: str) -> list[SourceSettings]:
    chosen = [source for source in settings.sources if name in ("", source.name)]
    if not chosen:
        raise UsageError(
            f"there is no source {name!r}; the settings have {', '.join(s.name for s in settings.sources)}"
        )
    return chosen


def _prepared(settings: Settings, source: SourceSettings, revision: str) -> Prepared:
    from reconciler.clock import SystemClock
    from reconciler.pipeline.line import Line

    line = Line(settings, source, records_or_none(settings), SystemClock())
    line.source.refresh()
    return line.prepare(revision)


def _document(prepared: Prepared) -> dict[str, Any]:
    import msgspec

    from reconciler.planning.document import document

    if prepared.plan is not None:
        return document(prepared.plan)
    delta = prepared.loaded.delta
    findings = [msgspec.to_builtins(finding) for finding in prepared.findings]
    return {"findings": findings, "documents": delta.documents, "resources": len(delta.added)}


def _show(prepared: Prepared, form: str) -> None:
    from reconciler.cli.findings import counted, print_findings
    from reconciler.planning.markdown import markdown
    from reconciler.planning.render import text

    if prepared.plan is None:
        print_findings(prepared.findings)
        click.echo(f"{prepared.revision} is refused: {counted(prepared.findings)}")
    elif form == "markdown":
        click.echo(markdown(prepared.plan), nl=False)
    else:
        print_findings(prepared.findings)
        click.echo(text(prepared.plan, colour=coloured(sys.stdout)), nl=False)


def _write(out: Path, document: object) -> None:
    import msgspec

    try:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write the plan to {out}: {error.strerror}") from error
