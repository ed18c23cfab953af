"""The steps of one key from its recorded to its desired state, and the changes that are forbidden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.model.finding import Pointer
from reconciler.model.key import Key, Kind
from reconciler.model.platform import PROTECTED_TAG
from reconciler.model.record import Record
from reconciler.model.resource import Resource
from reconciler.model.rule import error_rule
from reconciler.planning.blame import pointer_of
from reconciler.planning.diff import diff_bodies, highest_impact
from reconciler.planning.drift import DriftKind
from reconciler.planning.inputs import PlannerInput, Refusal
from reconciler.planning.plan import Action, ChangeClass, FieldChange, Hold, Step, StepId

ALLOW_REPLACE = "reconciler/allow-replace"

RULES = (
    error_rule(
        "immutable-field",
        "A field that cannot change after creation keeps the value that was applied.",
        "The change requires a delete and a create of the resource, which loses its data. The tag "
        f'{ALLOW_REPLACE}: "true" allows this after an approval; another name creates a second resource.',
        "docs/platform/fields.md#fields-that-cannot-change",
    ),
    error_rule(
        "protected-resource",
        f"A resource with the tag {PROTECTED_TAG} is never replaced.",
        "The tag protects it from deletion, and a replacement begins with a delete.",
        "docs/platform/fields.md#tags",
    ),
    error_rule(
        "volume-shrink",
        "The initial capacity of a volume set never becomes smaller.",
        "A file system in use cannot shrink without the loss of data. Create a smaller volume set and copy the data "
        "that you need.",
        "docs/platform/volumeset.md#growth",
    ),
)
"""Changes that the recorded state forbids."""


def steps_for(scope: PlannerInput, key: Key) -> Iterator[Step | Refusal]:
    """The steps of ``key``, unordered; a refusal if the recorded state forbids the change."""
    desired = scope.desired.get(key)
    records = scope.records.get(key, ())
    places = scope.places(key) if desired is not None else ()
    by_place = {record.location: record for record in records}
    if desired is not None:
        for location in places:
            yield from _steps_to_desired(scope, desired, location, by_place.get(location) or by_place.get(""), records)
    for record in records:
        if record.location not in places and _can_go(scope, desired, record):
            yield _make_delete_step(scope, record)


def _steps_to_desired(
    scope: PlannerInput, desired: Resource, location: str, record: Record | None, records: tuple[Record, ...]
) -> Iterator[Step | Refusal]:
    engine = scope.engines[location]
    if record is None:
        version = _version_at_new_place(desired, records)
        yield Step(Action.CREATE, desired.key, location, engine, version, desired.digest, desired.body)
        return
    moved = record.engine != engine or record.location != location
    if record.digest == desired.digest and not moved:
        yield from _heal_step(scope, record)
        return
    changes = diff_bodies(desired.key.kind, record.body, desired.body, location)
    impact = highest_impact(changes)
    refusals = list(_list_refusals(desired, changes))
    if refusals:
        yield from refusals
        return
    replaces = impact is ChangeClass.REPLACE
    anew = replaces or impact is ChangeClass.NEW_VERSION
    yield Step(
        Action.REPLACE if replaces else Action.UPDATE,
        desired.key,
        location,
        engine,
        _next_version(desired, record, records) if anew else record.version,
        desired.digest,
        desired.body,
        before=record.digest,
        changes=changes,
        hold=Hold.REPLACE if replaces else Hold.NONE,
        alias=record.alias,
    )


def _heal_step(scope: PlannerInput, record: Record) -> Iterator[Step]:
    """The step that restores the recorded state, in the recorded version; none without drift."""
    drift = scope.drifts.get(StepId(record.key, record.location))
    if drift is not None:
        yield Step(
            Action.CREATE if drift.what is DriftKind.MISSING else Action.UPDATE,
            record.key,
            record.location,
            record.engine,
            record.version,
            record.digest,
            record.body,
            before=drift.digest,
            changes=drift.changes,
            alias=record.alias,
            heals=True,
        )


def _next_version(desired: Resource, record: Record, records: tuple[Record, ...]) -> int:
    """The next version at the location of ``record``: one above the highest of all locations.

    After an interrupted run another location may already have that version. A location where the same change was
    in-place does not count.
    """
    for sibling in records:
        if sibling.digest == desired.digest and _needs_new_version(desired, record, sibling.location):
            return sibling.version
    return _get_latest_version(records) + 1


def _version_at_new_place(desired: Resource, records: tuple[Record, ...]) -> int:
    """The version at a new location: that of the other locations once they are as desired."""
    for record in records:
        if record.digest != desired.digest and any(
            _needs_new_version(desired, record, other.location) for other in records
        ):
            return _next_version(desired, record, records)
    return max(1, _get_latest_version(records)) if records else 1


def _needs_new_version(desired: Resource, before: Record, location: str) -> bool:
    """Whether the change from the body of ``before`` needs a new version at ``location``."""
    changes = diff_bodies(desired.key.kind, before.body, desired.body, location)
    return highest_impact(changes) in (ChangeClass.NEW_VERSION, ChangeClass.REPLACE)


def _get_latest_version(records: tuple[Record, ...]) -> int:
    return max((record.version for record in records), default=0)


def _make_delete_step(scope: PlannerInput, record: Record) -> Step:
    engine = scope.engines.get(record.location, record.engine)
    return Step(
        Action.DELETE,
        record.key,
        record.location,
        engine,
        record.version,
        record.digest,
        record.body,
        before=record.digest,
        alias=record.alias,
    )


def _can_go(scope: PlannerInput, desired: Resource | None, record: Record) -> bool:
    """Whether to delete the resource at the location of ``record``.

    A location that the settings no longer bind cannot be reached. The record of a workload without a location goes with
    its first step at a location.
    """
    if record.location and record.location not in scope.engines:
        return False
    return bool(record.location) or desired is None


def _list_refusals(desired: Resource, changes: tuple[FieldChange, ...]) -> Iterator[Refusal]:
    replaces = any(change.change is ChangeClass.REPLACE for change in changes)
    body = msgspec.json.decode(desired.body)
    tags = _parse_tags(desired.body) if replaces else {}
    allowed, protected = tags.get(ALLOW_REPLACE) == "true", tags.get(PROTECTED_TAG) == "true"
    for change in changes:
        pointer = pointer_of(change.path, body)
        if change.change is ChangeClass.REPLACE and allowed and protected:
            yield Refusal(
                desired.key,
                pointer,
                "protected-resource",
                f"{change.path} can change only by a replacement, and the tag {PROTECTED_TAG} forbids that",
                f"remove the tag {PROTECTED_TAG} first, or give it another name",
            )
        elif change.change is ChangeClass.REPLACE and not allowed:
            yield Refusal(
                desired.key,
                pointer,
                "immutable-field",
                f"{change.path} cannot change from {change.before!r} to {change.after!r} after creation",
                f'give it another name, or set the tag {ALLOW_REPLACE}: "true" to delete it and make it anew',
            )
        if change.path == "spec.initialCapacity" and desired.key.kind is Kind.VOLUMESET:
            yield from _check_volume_shrink(desired, change, pointer)


def _check_volume_shrink(desired: Resource, change: FieldChange, pointer: Pointer) -> Iterator[Refusal]:
    if change.before is not None and change.after is not None and change.after < change.before:
        yield Refusal(
            desired.key,
            pointer,
            "volume-shrink",
            f"volumes cannot shrink from {change.before} GB to {change.after} GB",
            f"write {change.before} or more, or make a new volume set and copy what you need",
        )


def _parse_tags(body: bytes) -> dict[str, Any]:
    tags: dict[str, Any] = msgspec.json.decode(body).get("tags") or {}
    return tags
