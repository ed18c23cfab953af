"""Plans the change between two commits from Git alone: the first counts as applied, the second is planned."""

from __future__ import annotations

import msgspec

from reconciler.clock import SystemClock
from reconciler.engines.plugin import RECORDED
from reconciler.errors import SourceEmpty
from reconciler.model.record import Health, Record
from reconciler.pipeline.accept import index_revision
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.externals import ExternalResources
from reconciler.pipeline.load import read_revision_settings
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.records.store import Records
from reconciler.render.plan.review import PlanReview
from reconciler.review.blame import add_blames
from reconciler.review.work_tree import BRANCH, commit_work_tree, find_work_tree, read_from
from reconciler.settings import LocationSettings, Settings, SourceSettings
from reconciler.source.expression import CHECKOUT
from reconciler.source.url import wanted_ref


def plan_between(
    settings: Settings, source: SourceSettings, before: str, after: str, blame: bool | None = None, head: str = ""
) -> PlanReview:
    """Plan the changes from ``before`` to ``after``; ``HEAD`` means ``head``, else the newest commit.

    Raises SourceError; SourceEmpty if ``after`` has no manifest, which never means "delete everything". Errors in
    ``before`` are ignored: only its valid manifests count. Every location counts as bound. The commits that caused the
    changes are searched for if ``blame`` is true, or if it is None and the changes are few.
    """
    records = Records.open(None)
    head = head or source.commit or wanted_ref(source)
    lenient = msgspec.structs.replace(settings, on_invalid="skip", locations={})
    first = _make_pipeline(lenient, source, records)
    base = _prepare_base_revision(first, before, head)
    places = _all_locations(first, base) if base is not None else set()
    bound = {location: LocationSettings(engine=RECORDED) for location in places}
    strict = msgspec.structs.replace(settings, on_invalid="refuse", locations=bound)
    if base is not None:
        _record_applied(_make_pipeline(strict, source, records), base)
    second = _make_pipeline(strict, source, records)
    planned = second.plan_revision(after, head=head)
    if extra := _all_locations(second, planned) - places:
        bound |= {location: LocationSettings(engine=RECORDED) for location in extra}
        second = _make_pipeline(msgspec.structs.replace(strict, locations=bound), source, records)
        planned = second.plan_revision(after, head=head)
    prepared = add_blames(second, planned, blame)
    delta = prepared.loaded.change_set
    since = before if base is None else str(base.revision)
    plan = prepared.plan
    return PlanReview(
        prepared.revision,
        # Its versions come from no records, so it cannot be approved.
        plan and msgspec.structs.replace(plan, hold_digest=""),
        prepared.findings,
        delta.documents,
        len(delta.added),
        prepared.read,
        prepared.blames,
        since=since,
    )


def plan_work_tree(
    settings: Settings, source: SourceSettings, before: str, blame: bool | None = None, head: str = ""
) -> PlanReview:
    """As ``plan_between``, from ``before`` to what the work tree of ``source`` holds. Raises UsageError without one."""
    directory = find_work_tree(source)
    # Its refs are not those of the repository with the work tree.
    base = _make_pipeline(settings, source, Records.open(None)).source.repository.resolve(before, head)
    with commit_work_tree(source, directory) as committed:
        review = plan_between(settings, committed, base.commit, "", blame)
    return msgspec.structs.replace(review, read=read_from(directory))


def find_org(settings: Settings, source: SourceSettings, revision: str) -> str:
    """The org that the repository of ``source`` names in ``revision``, or ("") in its work tree; "" if it names none.

    Raises SourceError, and UsageError where there is no work tree.
    """
    if not revision:
        with commit_work_tree(source, find_work_tree(source)) as committed:
            return find_org(settings, committed, BRANCH)
    repository = _make_pipeline(settings, source, Records.open(None)).source.repository
    return read_revision_settings(repository, repository.resolve(revision, CHECKOUT)).settings.org


def _make_pipeline(settings: Settings, source: SourceSettings, records: Records) -> SourcePipeline:
    pipeline = SourcePipeline(settings, source, records, SystemClock())
    # Secrets that no identity decrypts, and those stored on the host, are compared as they are in Git.
    ring = msgspec.structs.replace(pipeline.dialect.keyring, required=False)
    pipeline.dialect, pipeline.host = msgspec.structs.replace(pipeline.dialect, keyring=ring), None
    pipeline.externals = ExternalResources(
        frozenset(settings.locations), pipeline.externals.external, settings_unknown=True
    )
    return pipeline


def _prepare_base_revision(pipeline: SourcePipeline, before: str, head: str) -> PlannedRevision | None:
    """The manifests of ``before``; None if it has none, as in a new repository."""
    try:
        return pipeline.plan_revision(before, head=head)
    except SourceEmpty:
        return None


def _build_view(pipeline: SourcePipeline, prepared: PlannedRevision) -> DesiredStateView:
    return pipeline.view().with_changes(prepared.loaded.change_set)


def _all_locations(pipeline: SourcePipeline, prepared: PlannedRevision) -> set[str]:
    places = _build_view(pipeline, prepared).bodies.gvc_locations
    gvcs = (key.partition("/")[2] for key in prepared.loaded.change_set.added if key.startswith("gvc/"))
    return {location for gvc in gvcs for location in places.of(gvc)}


def _record_applied(pipeline: SourcePipeline, prepared: PlannedRevision) -> None:
    """Record ``prepared`` as applied."""
    scope = pipeline.scope(_build_view(pipeline, prepared), prepared.loaded)
    with pipeline.records.transaction():
        index_revision(pipeline.records, prepared.loaded, pipeline.name)
        pipeline.records.applied.put_many(
            Record(
                key,
                location,
                pipeline.name,
                resource.digest,
                resource.body,
                1,
                scope.engines[location],
                Health.HEALTHY,
                revision=str(prepared.revision),
            )
            for key, resource in sorted(scope.desired.items())
            for location in scope.places(key)
        )
