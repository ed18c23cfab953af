"""The input of the planner: keys with their desired and recorded state, and the policies in force."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from reconciler.model.finding import Pointer
from reconciler.model.key import PLACED, Key
from reconciler.model.record import Record
from reconciler.model.resource import Resource
from reconciler.planning.drift import Drift
from reconciler.planning.plan import StepId


class PrunePolicy(msgspec.Struct, frozen=True):
    """What a run may do without approval: delete ``count`` keys or ``percent`` of the inventory, whichever is smaller.

    ``hourly_count`` and ``hourly_percent`` limit the deletes of all runs in an hour in the same way, ``kinds`` those of
    single kinds. ``approval`` names what else waits: nothing (``never``), every delete (``deletes``), every step
    (``always``).
    """

    enabled: bool = True
    count: int = 10
    percent: float = 20.0
    approval: Literal["never", "deletes", "always"] = "never"
    kinds: Mapping[str, int] = {}
    hourly_count: int = 20
    hourly_percent: float = 40.0

    def allowance(self, inventory: int) -> int:
        """The number of keys that one run may delete without approval if the source owns ``inventory`` keys; at least
        1.
        """
        return max(1, min(self.count, int(inventory * self.percent / 100)))

    def hourly_allowance(self, inventory: int) -> int:
        """The number of keys that may be deleted within an hour without approval; at least as many as in one run."""
        hourly = min(self.hourly_count, int(inventory * self.hourly_percent / 100))
        return max(self.allowance(inventory), hourly)


class PlannerInput(msgspec.Struct, frozen=True):
    """Input of the planner.

    ``keys`` are planned, each once, and no others. ``locations`` has all locations of each GVC concerned, ``engines``
    the engines of those that the settings bind (``""``: of resources without a location). ``inventory`` counts the keys
    that the source owns. ``approved`` has the approvals as ``SOURCE/DIGEST``: of all steps on hold, or of one step of
    an interrupted run. ``refusals`` has who refused which steps on hold, by the same names. ``external`` are keys (as
    text) that other tools own; their health is unknown. ``suspended``
    keys stay unchanged; ``orphans``, each with the operator who made it one, are never deleted, nor are keys in
    ``retention``, each with the reason why what belongs to it keeps it. ``recent_deletes`` are
    keys that runs of the last hour deleted without approval, each with the time (ISO 8601) until which it counts.
    ``successors`` are workloads whose delete waits since an earlier run, each with those that differ in the name only:
    one of them was made in its place.
    ``drifts`` are differences between observed and recorded state, which the plan heals.
    """

    source: str
    revision: str
    keys: Collection[Key]
    desired: Mapping[Key, Resource]
    records: Mapping[Key, tuple[Record, ...]]
    locations: Mapping[str, tuple[str, ...]]
    engines: Mapping[str, str]
    inventory: int
    org: str
    policy: PrunePolicy = PrunePolicy()
    approved: frozenset[str] = frozenset()
    refusals: Mapping[str, str] = {}
    external: frozenset[str] = frozenset()
    suspended: frozenset[Key] = frozenset()
    orphans: Mapping[Key, str] = {}
    retention: Mapping[Key, str] = {}
    drifts: Mapping[StepId, Drift] = {}
    recent_deletes: Mapping[str, str] = {}
    successors: Mapping[Key, tuple[Key, ...]] = {}

    def places(self, key: Key) -> tuple[str, ...]:
        """The desired locations of ``key``: the bound ones of its GVC, or ``("",)`` for a kind without locations."""
        if key.kind not in PLACED:
            return ("",)
        return tuple([location for location in self.locations.get(key.gvc, ()) if location in self.engines]) or ("",)


class Refusal(msgspec.Struct, frozen=True, order=True):
    """A desired change that the recorded state forbids; ``pointer`` leads to its value in the manifest."""

    key: Key
    pointer: Pointer
    rule: str
    message: str
    suggestion: str
