"""`reconciler plan`: show what a run would change."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.options import (
    blame_option,
    example_of,
    load_settings_as_owner,
    records_or_none,
    select_sources,
    settings_option,
    shared_option,
)
from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text, note_uncommitted, source_errors_printed
from reconciler.errors import ReconcilerError, UsageError
from reconciler.model.lists.naming import format_names
from reconciler.terminal.folding import is_colour_terminal

if TYPE_CHECKING:
    from reconciler.render.plan.rendered import RenderedPlan
    from reconciler.render.plan.review import PlanReview
    from reconciler.settings import Settings, SourceSettings


class PlanOptions(NamedTuple):
    """The requested plans: of a ``revision``, or of what a ``directory`` holds, or the work tree of each source.

    ``blame`` is None where the number of changes decides.
    """

    revision: str
    name: str
    blame: bool | None
    directory: Path | None
    working_tree: bool

    def find_directory(self, source: SourceSettings) -> Path | None:
        """The directory that stands for ``source``; None where a commit is planned."""
        return Path(source.url) if self.working_tree else self.directory


DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
CHANGES = 3
"""Exit code of --detailed-exitcode where the plan has steps."""


@click.command(epilog=example_of("plan"))
@click.option(
    "--revision",
    metavar="REV",
    default="",
    help="Another revision; HEAD is what is applied.",
)
@click.option("--dir", "directory", metavar="PATH", type=DIRECTORY, help="What PATH holds, committed or not.")
@click.option("--working-tree", is_flag=True, help="What is checked out here, committed or not.")
@click.option("--source", "name", metavar="NAME", default="", help="Only this source.")
@output_option("markdown", has_alias=True)
@click.option("--out", type=click.Path(path_type=Path), help="Also write the plan to FILE as JSON.", metavar="FILE")
@shared_option("plan", "--detailed-exitcode")
@blame_option
@settings_option
def command(settings_file: Path, output: Output, out: Path | None, detailed_exitcode: bool, **parameters: Any) -> int:
    """Show what a run would do to apply the revision. Changes nothing.

    Deletes beyond the budget, and all deletes of volumes, wait for `reconciler approve DIGEST`. A running daemon with
    the same settings answers sooner than a new process could. Exits with 1 if anything has errors, even if the settings
    skip it, or if a cluster refuses a step.
    """
    from reconciler.cli.daemon_requests import request_plans
    from reconciler.render.plan.rendered import PlanRequest
    from reconciler.settings import settings_digest

    saved = _open_private(out) if out is not None and os.geteuid() == 0 else None
    settings = load_settings_as_owner(settings_file)
    options = PlanOptions(**parameters)
    sources = _select_planned(settings, options)
    form = output.base
    colour = is_colour_terminal(sys.stderr if form == "json" else sys.stdout)
    failed: dict[str, ReconcilerError] = {}
    plans = None
    # The daemon fetches from remote sources at their interval only.
    is_newest = not options.revision and options.directory is None and not options.working_tree
    if out is None and is_newest and all(source.local for source in sources):
        names = [source.name for source in sources]
        request = PlanRequest(settings_digest(settings), names, form, options.blame, colour)
        plans = request_plans(settings.state, request)
    if plans is None:
        from reconciler.render.plan.review import plan_document, render_plan

        reviews = _plan_sources(settings, sources, options, failed)
        if out is not None and reviews:
            documents = [plan_document(review) for review in reviews]
            _write_plan(out, saved, documents if len(sources) > 1 else documents[0])
        plans = [render_plan(review, form, colour=colour) for review in reviews]
    print_plans(plans, failed, output, several=len(sources) > 1)
    if is_newest:
        note_uncommitted(sources)
    return choose_exit_code(plans, failed, is_detailed=detailed_exitcode)


def _select_planned(settings: Settings, options: PlanOptions) -> list[SourceSettings]:
    """The sources to plan; of a directory, the one that it stands for. Raises NotFoundError and UsageError."""
    sources = select_sources(settings, options.name)
    if sum(map(bool, (options.revision, options.directory, options.working_tree))) > 1:
        raise UsageError("--revision is for commits, --dir and --working-tree for files; name one of them")
    if options.working_tree:
        return _select_checked_out(sources)
    if options.directory is None:
        return sources
    place = options.directory.resolve()
    own = [source for source in sources if source.local and place.is_relative_to(Path(source.url).resolve())]
    candidates = own or sources
    if len(candidates) > 1:
        names = ", ".join(source.name for source in candidates)
        raise UsageError(f"{options.directory} may stand for each of the sources {names}: name one with --source")
    return candidates


def _select_checked_out(sources: list[SourceSettings]) -> list[SourceSettings]:
    """Those of ``sources`` that have a work tree on this machine. Raises UsageError if none has."""
    checked_out = [source for source in sources if source.local and Path(source.url, ".git").exists()]
    if not checked_out:
        names = ", ".join(source.name for source in sources)
        raise UsageError(f"no work tree is here of: {names}; --dir PATH plans a directory")
    return checked_out


def choose_exit_code(plans: Sequence[RenderedPlan], failed: Mapping[str, ReconcilerError], *, is_detailed: bool) -> int:
    """The exit code for ``plans`` and sources that ``failed``; if ``is_detailed``, it shows whether there are steps."""
    if failed or any(plan.has_errors for plan in plans):
        return 1
    return CHANGES if is_detailed and any(plan.changes for plan in plans) else 0


def _plan_sources(
    settings: Settings, sources: list[SourceSettings], plan_options: PlanOptions, failed: dict[str, ReconcilerError]
) -> list[PlanReview]:
    """Plan each source; the errors of sources that cannot be planned are printed and added to ``failed``."""
    from reconciler.review.plan import plan_directory, plan_source

    records = records_or_none(settings)
    first = records.path is None and len(sources) > 1
    reviews: list[PlanReview] = []
    for source in sources:
        with source_errors_printed(source.name, failed):
            if (directory := plan_options.find_directory(source)) is not None:
                review = plan_directory(settings, source, records, directory.resolve(), blame=plan_options.blame)
            else:
                revision, blame = plan_options.revision, plan_options.blame
                review = plan_source(settings, source, records, revision, blame=blame, first=first)
            reviews.append(review)
    return reviews


def print_plans(
    plans: Sequence[RenderedPlan], failed: Mapping[str, ReconcilerError], output: Output, *, several: bool
) -> None:
    """Print ``plans`` in the form of ``output``, of ``several`` sources or of one, and what ``failed``."""
    form = output.base
    if output.form == "name":
        plain = (plan.document for plan in plans if plan.document is not None)
        click.echo(format_names(step for document in plain for step in document.get("steps", ())), nl=False)
        return
    if form == "json":
        documents = [plan.document for plan in plans] + [_render_failure(form, *error) for error in failed.items()]
        print_document(output, documents if several else documents[0])
        echo_text("".join(plan.findings for plan in plans), nl=False, err=True)
        return
    shown = [plan.shown for plan in plans]
    if form == "markdown":
        shown += [_render_failure(form, *error) for error in failed.items()]
    (click.echo if form == "markdown" else echo_text)("\n".join(shown), nl=False)


def _render_failure(form: str, source: str, error: ReconcilerError) -> Any:
    """What stands in place of the plan of a source that cannot be planned."""
    from reconciler.render.plan.review import failure_document, failure_markdown

    return failure_document(source, error) if form == "json" else failure_markdown(source, error)


def _open_private(out: Path) -> int:
    """Open ``out`` for writing, not truncated: root may write where the owner of the state directory may not."""
    try:
        return os.open(out, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(f"the plan cannot be written to {out}: {error.strerror}") from None


def _write_plan(out: Path, saved: int | None, document: object) -> None:
    from reconciler.render.layout import as_json

    try:
        with open(_open_private(out) if saved is None else saved, "wb") as file:
            file.truncate(0)
            file.write(as_json(document) + b"\n")
    except OSError as error:
        raise UsageError(f"the plan cannot be written to {out}: {error.strerror}") from None
