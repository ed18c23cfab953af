"""Plans what a run of a source would do, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from reconciler.access.approvers import read_approvers
from reconciler.clock import SystemClock
from reconciler.engines.plugin import (
    EnginePlugin,
    ForeseenRollout,
    PlanTrial,
    SupportsForesight,
    SupportsRollouts,
    SupportsTrial,
    list_plugins,
)
from reconciler.errors import RefusedError
from reconciler.model.key import Key
from reconciler.model.revision import Revision
from reconciler.pipeline.accept import index_revision
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.planning.plan import Step
from reconciler.records.store import Records
from reconciler.render.plan.review import PlanReview
from reconciler.review.blame import add_blames
from reconciler.review.work_tree import commit_work_tree, read_from
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


def plan_directory(
    settings: Settings, source: SourceSettings, records: Records, directory: Path, *, blame: bool | None
) -> PlanReview:
    """The plan of ``source`` for what ``directory`` holds, committed or not. Raises SourceError and UsageError."""
    with commit_work_tree(source, directory) as committed:
        review = plan_source(settings, committed, records, "", blame=blame, first=False)
    return msgspec.structs.replace(review, read=read_from(directory))


def review_planned(pipeline: SourcePipeline, planned: PlannedRevision, blame: bool | None) -> PlanReview:
    """``planned`` by ``pipeline``, for the people who decide about it; for ``blame`` see ``plan_source``."""
    planned = add_blames(pipeline, planned, blame)
    settings, records = pipeline.settings, pipeline.records
    waits = planned.plan is not None and bool(planned.plan.hold_digest)
    review = PlanReview(
        planned.revision,
        planned.plan,
        planned.findings,
        planned.loaded.change_set.documents,
        len(planned.loaded.change_set.added),
        planned.read,
        planned.blames,
        status=read_source_status(records, pipeline.name),
        approvers=read_approvers(records, settings) if waits and settings.api is not None else None,
    )
    return _with_foreseen(review, settings, records)


class PlannedKey(NamedTuple):
    """The plan of the revision in which a resource is."""

    revision: Revision
    steps: Sequence[Step]


def find_planned_key(settings: Settings, records: Records, key: Key) -> PlannedKey | None:
    """The plan that has ``key``, of the newest revision of a source; None if none of them has it.

    Raises SourceError, and RefusedError if errors refuse a revision and no other has ``key``.
    """
    refused = ""
    for source in settings.sources:
        pipeline = SourcePipeline(settings, source, records, SystemClock())
        pipeline.source.refresh()
        planned = pipeline.plan_revision()
        if planned.plan is None:
            refused = refused or f"{planned.revision} has errors, so nothing of it is planned: reconciler plan"
        elif any(step.key == key for step in planned.plan.steps):
            return PlannedKey(planned.revision, planned.plan.steps)
    if refused:
        raise RefusedError(refused)
    return None


def _with_foreseen(review: PlanReview, settings: Settings, records: Records) -> PlanReview:
    """``review`` with what the engine of a location will not enforce, will stop, roll out, make anew, and refuse."""
    used = {bound.engine for bound in settings.locations.values()}
    plugins = [plugin for plugin in list_plugins() if plugin.name in used]
    if review.plan is None or not plugins:
        return review
    steps = review.plan.steps
    able = [plugin for plugin in plugins if isinstance(plugin, SupportsForesight)]
    limitations = [
        foresee_limitation
        for plugin in able
        for foresee_limitation in plugin.foresee_limitations(settings, records, steps)
    ]
    stops = [foresee_stop for plugin in able for foresee_stop in plugin.foresee_stops(settings, records, steps)]
    rollouts = _list_rollouts(plugins, settings, review, records)
    trial = _try_steps(plugins, settings, records, steps)
    return msgspec.structs.replace(
        review, limitations=sorted(limitations), stops=sorted(stops), rollouts=rollouts, trial=trial
    )


def _list_rollouts(
    plugins: Sequence[EnginePlugin], settings: Settings, review: PlanReview, records: Records
) -> list[ForeseenRollout]:
    """What the settings roll out of the source of ``review``, but for what its plan changes anyway."""
    assert review.plan is not None
    planned = {(step.key, step.location) for step in review.plan.steps}
    source = review.plan.source
    rollouts = [
        rollout
        for plugin in plugins
        if isinstance(plugin, SupportsRollouts)
        for rollout in plugin.foresee_rollouts(settings)
        if (rollout.key, rollout.location) not in planned
    ]
    owned = records.applied.get_many({rollout.key for rollout in rollouts}, bodies=False)
    return sorted(
        rollout for rollout in rollouts if any(record.source == source for record in owned.get(str(rollout.key), ()))
    )


def _try_steps(
    plugins: Sequence[EnginePlugin], settings: Settings, records: Records, steps: Sequence[Step]
) -> PlanTrial | None:
    """What all locations say of ``steps``; None if no engine asks them."""
    asked = [plugin.try_steps(settings, records, steps) for plugin in plugins if isinstance(plugin, SupportsTrial)]
    trials = [trial for trial in asked if trial is not None]
    if not trials:
        return None
    return PlanTrial(
        tuple(sorted(refusal for trial in trials for refusal in trial.refusals)),
        tuple(sorted(replacement for trial in trials for replacement in trial.replacements)),
        tuple(sorted(location for trial in trials for location in trial.unasked)),
    )
