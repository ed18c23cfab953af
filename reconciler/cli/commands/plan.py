"""`reconciler plan`: what a run would do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.options import (
    blame_option,
    coloured,
    load,
    records_or_none,
    select_sources,
    settings_option,
    source_bugs_printed,
)
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.pipeline.source_pipeline import PlannedRevision
    from reconciler.settings import Settings


class PlanOptions(NamedTuple):
    """Which plans are asked for; ``blame`` is None where the number of changes decides."""

    revision: str
    name: str
    blame: bool | None


FORMS = ("text", "json", "markdown")
CHANGES = 3
"""Exit code of --detailed-exitcode where there is something to do."""


@click.command(epilog="Example: reconciler plan --revision feature --format markdown")
@click.option(
    "--revision",
    metavar="REV",
    default="",
    help="Another revision; HEAD is what is applied.",
)
@click.option("--source", "name", metavar="NAME", default="", help="Only this source.")
@click.option("--format", "form", type=click.Choice(FORMS), default="text", help="Default: text.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the plan to FILE as JSON too.", metavar="FILE")
@click.option("--detailed-exitcode", is_flag=True, help=f"Exit with {CHANGES} where there is something to do.")
@blame_option
@settings_option
def command(settings_file: Path, form: str, out: Path | None, detailed_exitcode: bool, **wanted: Any) -> int:
    """Show what a run would do to make the revision so. Changes nothing.

    Deletes beyond the budget, and all that delete volumes, wait for `reconciler approve DIGEST`. Exits with 1 where
    anything has errors, also where the settings skip it.
    """
    from reconciler.model.finding import has_errors

    failed: list[str] = []
    prepared = _prepared(load(settings_file), PlanOptions(**wanted), failed)
    if failed and not prepared:
        return 1
    if out is not None:
        _write(out, _document(prepared))
    if form == "json":
        from reconciler.cli.output.findings import echo_json

        echo_json(_document(prepared))
    else:
        click.echo("\n".join(_shown(each, form) for each in prepared), nl=False)
    if form == "json":
        _complain(prepared)
    if failed or any(each.plan is None or has_errors(each.findings) for each in prepared):
        return 1
    return CHANGES if detailed_exitcode and any(each.plan and each.plan.steps for each in prepared) else 0


def _prepared(settings: Settings, wanted: PlanOptions, failed: list[str]) -> list[PlannedRevision]:
    """What each source is about to become; those that met a bug are ``failed``, and the bug is printed."""
    from reconciler.clock import SystemClock
    from reconciler.pipeline.load import index_revision
    from reconciler.pipeline.source_pipeline import SourcePipeline
    from reconciler.review.blame import blamed

    records = records_or_none(settings)
    found: list[PlannedRevision] = []
    sources = select_sources(settings, wanted.name)
    first_time = records.path is None and len(sources) > 1
    for source in sources:
        with source_bugs_printed(source.name, failed):
            line = SourcePipeline(settings, source, records, SystemClock())
            line.source.refresh()
            found.append(blamed(line, line.plan_revision(wanted.revision, keep_cache=first_time), wanted.blame))
            if records.path is None:
                # Nothing is recorded yet, so this is how the sources that follow get to know this one.
                index_revision(records, found[-1].loaded, source.name)
    return found


def _document(prepared: list[PlannedRevision]) -> Any:
    """The plan as JSON values; of several sources, a list."""
    found = [_one(each) for each in prepared]
    return found[0] if len(found) == 1 else found


def _one(prepared: PlannedRevision) -> dict[str, Any]:
    from reconciler.cli.output.findings import findings_document
    from reconciler.render.json import document

    if prepared.plan is not None:
        return document(prepared.plan, prepared.blames)
    delta = prepared.loaded.change_set
    return findings_document(prepared.findings, delta.documents, len(delta.added))


def _shown(prepared: PlannedRevision, form: str) -> str:
    from reconciler.cli.output.excerpt import Excerpts
    from reconciler.cli.output.findings import counted, findings_text, markdown_plan, more
    from reconciler.render.text import text

    plan, findings = prepared.plan, prepared.findings
    if form == "markdown":
        return markdown_plan(plan, findings, prepared.blames)
    colour = coloured(sys.stdout)
    told = findings_text(findings, Excerpts(prepared.read), colour=colour)
    if plan is None:
        return f"{told}{prepared.revision} is refused: {counted(findings)}\n{more(findings)}"
    return told + text(plan, colour=colour, blames=prepared.blames) + more(findings)


def _complain(prepared: list[PlannedRevision]) -> None:
    """Say on stderr what is left out of plans, since a plan as JSON has no place for it."""
    from reconciler.cli.output.excerpt import Excerpts
    from reconciler.cli.output.findings import print_findings

    for each in prepared:
        if each.plan is not None:
            print_findings(each.findings, Excerpts(each.read), sys.stderr)


def _write(out: Path, document: object) -> None:
    from reconciler.cli.output.findings import as_json

    try:
        out.write_bytes(as_json(document) + b"\n")
    except OSError as error:
        raise UsageError(f"the plan cannot be written to {out}: {error.strerror}") from None
