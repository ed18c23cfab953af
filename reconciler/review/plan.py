"""Plans what a run of a source would do, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.clock import SystemClock
from reconciler.pipeline.accept import index_revision
from reconciler.pipeline.source_pipeline import PlannedRevision, SourcePipeline
from reconciler.records.store import Records
from reconciler.render.plan.review import PlanReview
from reconciler.review.blame import add_blames
from reconciler.settings import Settings, SourceSettings
from reconciler.status.source_status import read_source_status

if TYPE_CHECKING:
    from reconciler.engines.host.foreseen import ForeseenLimitation


def plan_source(
    settings: Settings, source: SourceSettings, records: Records, revision: str, *, blame: bool | None, first: bool
) -> PlanReview:
    """The plan of ``source`` for ``revision`` ("": its newest one). Raises SourceError.

    The commits that caused the changes are searched for if ``blame`` is true, or if it is None and the changes are few.
    With ``first``, nothing is recorded yet, and the resources of this source are added to ``records`` in memory, for
    the next sources.
    """
    line = SourcePipeline(settings, source, records, SystemClock())
    line.source.refresh()
    planned = add_blames(line, line.plan_revision(revision, keep_cache=first), blame)
    review = PlanReview(
        planned.revision,
        planned.plan,
        planned.findings,
        planned.loaded.change_set.documents,
        len(planned.loaded.change_set.added),
        planned.read,
        planned.blames,
        status=read_source_status(records, source.name),
        limitations=_limitations(settings, records, planned),
    )
    if first:
        index_revision(records, planned.loaded, source.name)
    return review


def _limitations(settings: Settings, records: Records, planned: PlannedRevision) -> list[ForeseenLimitation]:
    if planned.plan is None or all(each.engine != "host" for each in settings.locations.values()):
        return []
    from reconciler.engines.host.foreseen import foreseen_limitations  # without a host, its modules are not needed

    return foreseen_limitations(settings, records, planned.plan.steps)
