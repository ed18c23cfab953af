"""The plan and its parts, as values."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from reconciler.model.key import Key


class Action(StrEnum):
    """What a step does to a key at a location."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"


class ChangeClass(StrEnum):
    """The impact of a changed field; ``IMPACT_RANK`` orders it from low to high."""

    IN_PLACE = "in-place"
    SCALE_ONLY = "scale-only"
    NEW_VERSION = "new-version"
    REPLACE = "replace"


IMPACT_RANK = {ChangeClass.IN_PLACE: 0, ChangeClass.SCALE_ONLY: 1, ChangeClass.NEW_VERSION: 2, ChangeClass.REPLACE: 3}


class Hold(StrEnum):
    """Why a step waits: for ``reconciler approve``, or (suspended) for ``resume``; ``NONE`` if it does not."""

    NONE = ""
    BUDGET = "prune-budget"
    HOURLY = "prune-hourly-budget"
    VOLUMES = "deletes-volumes"
    RENAME = "renames-volumes"
    REPLACE = "replace"
    ALWAYS = "approval-always"
    DELETES = "approval-deletes"
    SUSPENDED = "suspended"

    @property
    def approvable(self) -> bool:
        """Whether an approval releases the step."""
        return self not in (Hold.NONE, Hold.SUSPENDED)


class FieldChange(msgspec.Struct, frozen=True):
    """One field that differs: ``path`` as ``spec.containers[main].image``; None stands for a missing value."""

    path: str
    before: Any
    after: Any
    change: ChangeClass = msgspec.field(name="class")


class StepId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The identity of a step in its plan: there is at most one for a key and location."""

    key: Key
    location: str

    def __str__(self) -> str:
        return f"{self.key}@{self.location}" if self.location else str(self.key)


class Step(msgspec.Struct, frozen=True, gc=False):
    """An action on a key at a location (``""``: of the resource itself).

    ``body`` and ``digest`` are the desired state (of a delete: the recorded one), ``before`` the digest that they
    replace. ``version`` is the version of the new record. ``waits_for`` are steps of the same plan; ``needs_healthy``
    are keys that must be Healthy before this step begins. A step that ``heals`` restores what was applied.
    ``hold_until`` is the time (ISO 8601) at which the hold ends by itself, "" if it never does.
    """

    action: Action
    key: Key
    location: str
    engine: str
    version: int
    digest: str
    body: bytes
    before: str = ""
    changes: tuple[FieldChange, ...] = ()
    waits_for: tuple[StepId, ...] = ()
    needs_healthy: tuple[Key, ...] = ()
    hold: Hold = Hold.NONE
    alias: str = ""
    heals: bool = False
    hold_until: str = ""

    @property
    def id(self) -> StepId:
        """Key and location."""
        return StepId(self.key, self.location)


class RetainedResource(msgspec.Struct, frozen=True, order=True):
    """A resource that is no longer in Git and is not deleted, and why."""

    key: Key
    reason: str


class Rename(msgspec.Struct, frozen=True, order=True):
    """A delete and a create of equal resources."""

    before: Key
    after: Key


class Plan(msgspec.Struct, frozen=True):
    """All steps, in an order that respects every dependency.

    ``digest`` covers the steps, not the commit. ``hold_digest`` covers only the steps that wait for approval, "" if
    none does; an approval is recorded under it. ``approved`` is the approval that released steps of this plan, "" if
    none was needed; ``approved_digests`` has one digest for each of these steps. ``refusal`` says who refused the steps
    that wait, and why; "" if nobody did.
    """

    source: str
    revision: str
    steps: tuple[Step, ...]
    digest: str
    hold_digest: str = ""
    approved: str = ""
    approved_digests: tuple[str, ...] = ()
    retained: tuple[RetainedResource, ...] = ()
    renames: tuple[Rename, ...] = ()
    refusal: str = ""


def causes_of_waiting(steps: Iterable[Step]) -> dict[StepId, Step]:
    """The steps without a hold that wait for a held step, each with that step.

    ``steps`` are in the order of a plan.
    """
    on_hold: dict[StepId, Step] = {}
    causes: dict[StepId, Step] = {}
    for step in steps:
        if step.hold is not Hold.NONE:
            on_hold[step.id] = step
            continue
        cause = next((blocker for wait in step.waits_for if (blocker := on_hold.get(wait) or causes.get(wait))), None)
        if cause is not None:
            causes[step.id] = cause
    return causes
