"""Builds the planner's input from a change set: the keys to plan, and the state around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from reconciler.drift.healing import drifts_to_heal
from reconciler.errors import RecordsError
from reconciler.iteration import iterate_batches
from reconciler.manifests.change_set import keys_touched
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import PLACED, Key, Kind
from reconciler.model.record import Record
from reconciler.pipeline.desired_index import MAX_PREFETCHED, RecordsIndex
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.placement import GvcLocations
from reconciler.planning.inputs import PlannerInput, PrunePolicy, Refusal
from reconciler.planning.successors import find_successors
from reconciler.records.sql import stored_key
from reconciler.records.tables.applied import AppliedRow
from reconciler.records.tables.deletions import HOUR
from reconciler.settings import Settings
from reconciler.times import ExpiryTime, format_iso_time


def planner_input(
    view: DesiredStateView, settings: Settings, revision: str, unsettled: Iterable[str], expiry: ExpiryTime
) -> PlannerInput:
    """Return the planner's input for the view's change set and the ``unsettled`` keys of earlier runs.

    It includes drifted resources to heal.
    """
    index = view.index
    drifts = drifts_to_heal(index.records, settings, index.source)
    places = view.bodies.gvc_locations
    touched = keys_touched(index.changes)
    drifted = (str(drift.key) for drift in drifts)
    # File order is close to key order: sorting takes half as long, and neighbours are close in memory.
    names = dict.fromkeys((*touched, *unsettled, *drifted, *_moved_members(view, touched, places)))
    resources = {name: touched[name] if name in touched else view.bodies.resource(name) for name in names}
    keys = {name: stored_key(name, "desired") if it is None else it.key for name, it in resources.items()}
    desired = {resource.key: resource for resource in resources.values() if resource is not None}
    records = {keys[name]: records for name, records in index.records.applied.get_many(names).items()}
    gone = [key for key in keys.values() if key not in desired]
    theirs = {key for key, owners in records.items() if any(record.source != index.source for record in owners)}
    gvcs = {key.gvc if key.gvc else key.name for key in keys.values() if key.kind in PLACED or key.kind is Kind.GVC}
    index.prefetch(f"{Kind.GVC}/{gvc}" for gvc in gvcs)
    return PlannerInput(
        source=index.source,
        revision=revision,
        keys=[key for key in keys.values() if key not in theirs or key in desired],
        desired=desired,
        records=records,
        locations={gvc: places.of(gvc) for gvc in gvcs},
        engines=engines_of(settings),
        inventory=index.records.applied.inventory(index.source),
        org=settings.org,
        external=index.list_external(),
        policy=_build_prune_policy(settings),
        approved=index.records.approvals.valid(expiry.now),
        refusals={digest: str(one) for digest, one in index.records.approvals.refusals(index.source).items()},
        suspended=frozenset(_list_suspended_keys(index, keys)),
        drifts=drifts,
        recent_deletes=_counted_deletes(index, expiry),
        orphans={keys[name]: by for name, by in index.records.orphans.all().items() if name in keys},
        retention=_find_retained_contexts(settings, gone),
        successors=_list_successor_candidates(view, [records[key] for key in gone if key in records]),
    )


def _list_successor_candidates(
    view: DesiredStateView, undesired: Iterable[tuple[Record, ...]]
) -> dict[Key, tuple[Key, ...]]:
    """The workloads that were deleted from Git before this revision, each with those that may have its place there."""
    by_gvc: dict[str, list[Record]] = {}
    for records in undesired:
        if records[0].key.kind is Kind.WORKLOAD:
            by_gvc.setdefault(records[0].key.gvc, []).append(records[0])
    # If a workload comes in the place of one that goes by this revision, both are in the same plan.
    removed = set(view.index.changes.list_removed()) if by_gvc else set()
    successors: dict[Key, tuple[Key, ...]] = {}
    for gvc, gone in by_gvc.items():
        if waiting := [record for record in gone if str(record.key) not in removed]:
            others = view.index.members(gvc) - {str(record.key) for record in gone}
            names = view.index.records.applied.get_many(
                (name for name in others if name.startswith(f"{Kind.WORKLOAD}/")), bodies=False
            )
            bodies = {Key.parse(name): body for name in names if (body := view.bodies.related_body(name)) is not None}
            successors |= find_successors(waiting, bodies)
    return successors


def _find_retained_contexts(settings: Settings, undesired: Iterable[Key]) -> dict[Key, str]:
    """Audit contexts that have records, each with the reason why it stays."""
    contexts = [key for key in undesired if key.kind is Kind.AUDITCTX]
    if not contexts:
        return {}
    from reconciler.access.store import contexts_with_records

    try:
        in_use = contexts_with_records(settings.state, [key.name for key in contexts])
    except RecordsError as error:
        # The records of an audit context are never deleted, so an unknown answer counts as yes.
        return dict.fromkeys(contexts, f"whether it has records is not known: {error}")
    return {key: "it has records, which are never deleted" for key in contexts if key.name in in_use}


def _build_prune_policy(settings: Settings) -> PrunePolicy:
    prune = settings.prune
    return PrunePolicy(
        prune.enabled,
        prune.count,
        prune.percent,
        settings.approval,
        prune.kinds,
        prune.hourly_count,
        prune.hourly_percent,
    )


def _counted_deletes(index: RecordsIndex, expiry: ExpiryTime) -> dict[str, str]:
    """The keys that the source deleted in the last hour, each with the time until which it counts."""
    return {
        # The text has whole seconds: rounded down, it would end before the delete leaves the budget.
        key: format_iso_time(math.ceil(at + HOUR))
        for key, at in index.records.deletions.recent(index.source, expiry).items()
    }


def _list_suspended_keys(index: RecordsIndex, keys: Mapping[str, Key]) -> Iterator[Key]:
    return (keys[suspension.target] for suspension in index.records.suspensions.all() if suspension.target in keys)


def engines_of(settings: Settings) -> dict[str, str]:
    """Location → name of its engine; a resource without a location is only recorded."""
    return {"": "recorded"} | {name: location.engine for name, location in settings.locations.items()}


def _moved_members(view: DesiredStateView, touched: Iterable[str], places: GvcLocations) -> Iterator[str]:
    """Members of the touched GVCs whose recorded locations differ from the desired ones."""
    changed = (name for name in touched if name.startswith(f"{Kind.GVC}/"))
    # Without this, each change of a GVC would read the records of all its members.
    gvcs = {
        name.partition("/")[2]
        for name in changed
        if _get_static_placement(view, name) != _applied_placement(view, name)
    }
    if locations := [name for name in touched if name.startswith(f"{Kind.LOCATION}/")]:
        gvcs |= {key.partition("/")[2] for key in view.bodies.gvcs_moved_by(locations)}
    for gvc in sorted(gvcs):
        members = view.index.members(gvc)
        if members and _placed_at(view.index, members) != set(places.of(gvc)):
            yield from members


def _get_static_placement(view: DesiredStateView, gvc: str) -> Any:
    """Where the GVC ``gvc`` is placed by its body; None if it is not desired."""
    return ((view.bodies.body(gvc) or {}).get("spec") or {}).get("staticPlacement")


def _applied_placement(view: DesiredStateView, gvc: str) -> Any:
    """Where it was placed when it was last applied. Members that have not moved since are pending."""
    records = view.index.records.applied.get(gvc)
    return (msgspec.json.decode(records[0].body).get("spec") or {}).get("staticPlacement") if records else None


def _placed_at(index: RecordsIndex, members: Iterable[str]) -> set[str]:
    """Recorded locations of the members."""
    recorded = index.records.applied.get_many(key for key in members if not key.startswith(f"{Kind.IDENTITY}/"))
    return {record.location for records in recorded.values() for record in records if record.location}


def pending_keys_of(view: DesiredStateView, settings: Settings) -> frozenset[str]:
    """Keys of the source whose records differ from the desired state, found by a merge of both sorted lists.

    Needed at the start, and after a run whose open keys are not known; any other run returns those that it could not
    finish.
    """
    records, source = view.index.records, view.index.source
    bindings = _Bindings(view, engines_of(settings))
    recorded = records.applied.scan(source)
    pending = set()
    row = next(recorded, _END)
    for key, digest in records.desired.scan(source):
        # The empty key of the end sorts before all others.
        while row[0] and row[0] < key:
            pending.add(row[0])
            row = next(recorded, _END)
        for location, engine in bindings.of(key):
            if row != (key, location, digest, engine):
                pending.add(key)
                break
            row = next(recorded, _END)
        # After a difference these are skipped; otherwise they are at places where the resource should not be.
        while row[0] == key:
            pending.add(key)
            row = next(recorded, _END)
    while row[0]:
        pending.add(row[0])
        row = next(recorded, _END)
    return frozenset(pending)


_END: AppliedRow = ("", "", "", "")

_Binding = tuple[str, str]
"""A location and its engine."""


class _Bindings:
    """Where each resource should be applied, sorted by location. A settled resource has one record for each."""

    def __init__(self, view: DesiredStateView, engines: Mapping[str, str]) -> None:
        self._places = view.bodies.gvc_locations
        self._engines = engines
        self._recorded_only: list[_Binding] = [("", engines[""])]
        self._of_gvc: dict[str, list[_Binding]] = {}
        for batch in iterate_batches(view.index.records.desired.gvcs_of(view.index.source), MAX_PREFETCHED):
            view.index.prefetch(batch)
            for key in batch:
                self._find(key.partition("/")[2])

    def of(self, key: str) -> list[_Binding]:
        """The bindings of the resource ``key``; the empty location if it is only recorded."""
        kind, _, rest = key.partition("/")
        if kind not in PLACED:
            return self._recorded_only
        gvc = rest.partition("/")[0]
        return self._of_gvc[gvc] if gvc in self._of_gvc else self._find(gvc)

    def _find(self, gvc: str) -> list[_Binding]:
        bound = [(location, self._engines[location]) for location in self._places.of(gvc) if location in self._engines]
        # A resource of a GVC without a bound location is only recorded.
        bindings = self._of_gvc[gvc] = sorted(bound) or self._recorded_only
        return bindings


def finding_of(view: DesiredStateView, refusal: Refusal) -> Finding:
    """``refusal`` as a finding at the place of its resource in Git."""
    site = view.index.site(str(refusal.key))
    line, column = view.positions.position(site, refusal.pointer)
    return Finding(
        site.path, line, column, refusal.rule, Severity.ERROR, refusal.message, refusal.suggestion, str(refusal.key)
    )
