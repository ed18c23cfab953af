"""Plans what a run of a source would do, and changes nothing."""

from __future__ import annotations

import msgspec

from reconciler.clock import SystemClock
from reconciler.engines.plugin import SupportsForesight, list_plugins
from reconciler.pipeline.accept import index_revision
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.records.store import Records
from reconciler.render.plan.review import PlanReview
from reconciler.review.blame import add_blames
from reconciler.settings import Settings, SourceSettings
from reconciler.status.source_status import read_source_status


def plan_source(
    settings: Settings, source: SourceSettings, records: Records, revision: str, *, blame: bool | None, first: bool
) -> PlanReview:
    """The plan of ``source`` for ``revision`` ("": its newest one). Raises SourceError.

    The commits that caused the changes are searched for if ``blame`` is true, or if it is None and the changes are few.
    With ``first``, nothing is recorded yet, and the resources of this source are added to ``records`` in memory, for
    the next sources.
    """
    pipeline = SourcePipeline(settings, source, records, SystemClock())
    pipeline.source.refresh()
    planned = pipeline.plan_revision(revision, keep_cache=first)
    review = review_planned(pipeline, planned, blame)
    if first:
        index_revision(records, planned.loaded, source.name)
    return review


def review_planned(pipeline: SourcePipeline, planned: PlannedRevision, blame: bool | None) -> PlanReview:
    """``planned`` by ``pipeline``, for the people who decide about it; for ``blame`` see ``plan_source``."""
    planned = add_blames(pipeline, planned, blame)
    review = PlanReview(
        planned.revision,
        planned.plan,
        planned.findings,
        planned.loaded.change_set.documents,
        len(planned.loaded.change_set.added),
        planned.read,
        planned.blames,
        status=read_source_status(pipeline.records, pipeline.name),
    )
    return _with_foreseen(review, pipeline.settings, pipeline.records)


def _with_foreseen(review: PlanReview, settings: Settings, records: Records) -> PlanReview:
    """``review`` with what the engine of a location will not enforce, and what it will stop."""
    used = {bound.engine for bound in settings.locations.values()}
    plugins = [plugin for plugin in list_plugins() if plugin.name in used and isinstance(plugin, SupportsForesight)]
    if review.plan is None or not plugins:
        return review
    steps = review.plan.steps
    limitations = [
        foresee_limitation
        for plugin in plugins
        for foresee_limitation in plugin.foresee_limitations(settings, records, steps)
    ]
    stops = [foresee_stop for plugin in plugins for foresee_stop in plugin.foresee_stops(settings, records, steps)]
    return msgspec.structs.replace(review, limitations=sorted(limitations), stops=sorted(stops))
