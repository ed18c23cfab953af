"""`reconciler plan`: show what a run would do; changes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.options import blame_option, load, records_or_none, select_sources, settings_option
from reconciler.cli.output.printing import coloured, source_errors_printed
from reconciler.errors import ReconcilerError, UsageError

if TYPE_CHECKING:
    from reconciler.engines.host.foreseen import ForeseenLimitation
    from reconciler.pipeline.source_pipeline import PlannedRevision
    from reconciler.records.store import Records
    from reconciler.settings import Settings
    from reconciler.status.source_status import SourceStatus


class PlanOptions(NamedTuple):
    """The requested plans; ``blame`` is None where the number of changes decides."""

    revision: str
    name: str
    blame: bool | None


FORMS = ("text", "json", "markdown")
MAX_LIMITATIONS, MAX_KEYS = 20, 3
"""Limits of limitations shown, and of workloads named with each; for the rest only the number is shown."""
CHANGES = 3
"""Exit code of --detailed-exitcode where the plan has steps."""


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
    """Show what a run would do to apply the revision. Changes nothing.

    Deletes beyond the budget, and all deletes of volumes, wait for `reconciler approve DIGEST`. Exits with 1 if
    anything has errors, even if the settings skip it.
    """
    from reconciler.model.finding import has_errors

    saved = _open_private(out) if out is not None and os.geteuid() == 0 else None
    settings = load(settings_file)
    failed: dict[str, ReconcilerError] = {}
    options = PlanOptions(**wanted)
    prepared = _plan_sources(settings, options, failed)
    several = len(select_sources(settings, options.name)) > 1
    documents = [_document(each) for each in prepared]
    if out is not None and prepared:
        _write(out, saved, documents if several else documents[0])
    if form == "json":
        from reconciler.cli.output.printing import echo_json

        documents += [_failure(name, error) for name, error in failed.items()]
        echo_json(documents if several else documents[0])
        _complain(prepared)
    else:
        shown = [_shown(each, form) for each in prepared]
        shown += [_failure_markdown(name, error) for name, error in failed.items()] if form == "markdown" else []
        click.echo("\n".join(shown), nl=False)
    if failed or any(each.revision.plan is None or has_errors(each.revision.findings) for each in prepared):
        return 1
    return (
        CHANGES
        if detailed_exitcode and any(each.revision.plan and each.revision.plan.steps for each in prepared)
        else 0
    )


class PlannedSource(NamedTuple):
    """The plan of a source, and its present state: nothing of a suspended source is applied.

    ``limitations`` lists what its locations do not enforce.
    """

    revision: PlannedRevision
    state: SourceStatus
    limitations: Sequence[ForeseenLimitation] = ()


def _plan_sources(settings: Settings, wanted: PlanOptions, failed: dict[str, ReconcilerError]) -> list[PlannedSource]:
    """Plan each source; the errors of sources that cannot be planned are printed and added to ``failed``."""
    from reconciler.clock import SystemClock
    from reconciler.pipeline.accept import index_revision
    from reconciler.pipeline.source_pipeline import SourcePipeline
    from reconciler.review.blame import blamed
    from reconciler.status.source_status import read_source_status

    records = records_or_none(settings)
    found: list[PlannedSource] = []
    sources = select_sources(settings, wanted.name)
    first_time = records.path is None and len(sources) > 1
    for source in sources:
        with source_errors_printed(source.name, failed):
            line = SourcePipeline(settings, source, records, SystemClock())
            line.source.refresh()
            planned = blamed(line, line.plan_revision(wanted.revision, keep_cache=first_time), wanted.blame)
            limitations = _limitations(settings, records, planned)
            found.append(PlannedSource(planned, read_source_status(records, source.name), limitations))
            if records.path is None:
                # Nothing is recorded yet, so this makes the source's resources known to the next sources.
                index_revision(records, planned.loaded, source.name)
    return found


def _limitations(settings: Settings, records: Records, planned: PlannedRevision) -> list[ForeseenLimitation]:
    """The limitations of the plan at locations on this host; the host engine is imported only where it is used."""
    if planned.plan is None or all(each.engine != "host" for each in settings.locations.values()):
        return []
    from reconciler.engines.host.foreseen import foreseen_limitations

    return foreseen_limitations(settings, records, planned.plan.steps)


def _failure(name: str, error: ReconcilerError) -> dict[str, Any]:
    return {"source": name, "error": {"reason": error.reason, "message": str(error)}}


def _failure_markdown(name: str, error: ReconcilerError) -> str:
    from reconciler.printable import code_span

    return f"### Source {code_span(name)}: no plan\n\n{code_span(str(error))}\n"


def _document(prepared: PlannedSource) -> dict[str, Any]:
    """The plan as JSON values, or the findings that refuse it."""
    from reconciler.render.findings import findings_document
    from reconciler.render.plan.json import document
    from reconciler.render.sources import source_document

    planned, state, limitations = prepared
    if planned.plan is not None:
        source_fields = source_document(state)
        found = document(planned.plan, planned.blames)
        found["not_enforced"] = [
            {"message": each.message, "location": each.location, "keys": list(map(str, each.keys))}
            for each in limitations
        ]
        return found | {name: source_fields[name] for name in ("pinned", "suspended")}
    delta = planned.loaded.change_set
    return findings_document(planned.findings, delta.documents, len(delta.added))


def _shown(prepared: PlannedSource, form: str) -> str:
    from reconciler.printable import code_span, printable
    from reconciler.render.excerpt import Excerpts
    from reconciler.render.findings import explain_hint, findings_text, markdown_plan, severity_counts
    from reconciler.render.plan.text import text
    from reconciler.render.sources import hold_lines

    planned, state, limitations = prepared
    plan, findings, holds = planned.plan, planned.findings, hold_lines(state)
    if form == "markdown":
        shown = markdown_plan(plan, findings, planned.blames)
        shown += "".join(f"\n{code_span(line)}\n" for line in _not_enforced(limitations))
        return shown + "".join(f"\nSource {code_span(state.name)}: {code_span(line)}\n" for line in holds)
    colour = coloured(sys.stdout)
    report = findings_text(findings, Excerpts(planned.read), colour=colour)
    if plan is None:
        report += f"{planned.revision} is refused: {severity_counts(findings)}\n"
    else:
        report += text(plan, colour=colour, blames=planned.blames)
        report += "".join(f"{printable(line)}\n" for line in _not_enforced(limitations))
    return report + "".join(f"Source {state.name}: {line}\n" for line in holds) + explain_hint(findings)


def _not_enforced(limitations: Sequence[ForeseenLimitation]) -> Iterator[str]:
    """A line for each limitation, with its workloads."""
    for each in limitations[:MAX_LIMITATIONS]:
        names = ", ".join(map(str, each.keys[:MAX_KEYS]))
        more_keys = f" and {len(each.keys) - MAX_KEYS} more" if len(each.keys) > MAX_KEYS else ""
        yield f"Not enforced at {each.location}: {names}{more_keys}: {each.message}"
    if len(limitations) > MAX_LIMITATIONS:
        yield f"… and {len(limitations) - MAX_LIMITATIONS} more that is not enforced"


def _complain(prepared: list[PlannedSource]) -> None:
    """Print the findings on stderr, since a plan as JSON has no place for them."""
    from reconciler.cli.output.printing import print_findings
    from reconciler.render.excerpt import Excerpts

    for each, *_ in prepared:
        if each.plan is not None:
            print_findings(each.findings, Excerpts(each.read), sys.stderr)


def _open_private(out: Path) -> int:
    """Open ``out`` for writing, not truncated: root may write where the owner of the state directory may not."""
    try:
        return os.open(out, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(f"the plan cannot be written to {out}: {error.strerror}") from None


def _write(out: Path, saved: int | None, document: object) -> None:
    from reconciler.render.layout import as_json

    try:
        with open(_open_private(out) if saved is None else saved, "wb") as file:
            file.truncate(0)
            file.write(as_json(document) + b"\n")
    except OSError as error:
        raise UsageError(f"the plan cannot be written to {out}: {error.strerror}") from None
