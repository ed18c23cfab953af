"""What a plan is made from: the keys in question, as desired and as recorded, and what holds around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from reconciler.model.key import PLACED, Key
from reconciler.model.record import Record
from reconciler.model.resource import Resource
from reconciler.planning.drift import Drift
from reconciler.planning.plan import StepId


class PrunePolicy(msgspec.Struct, frozen=True):
    """How much one run may do on its own: delete ``count`` keys or ``percent`` of the inventory, whichever is smaller.

    ``hourly_count`` and ``hourly_percent`` bound what all runs of an hour delete together in the same way. ``kinds``
    bounds the deletes of single kinds besides. ``approval`` says what waits beyond that: nothing (``never``), every
    delete (``deletes``), every step (``always``).
    """

    enabled: bool = True
    count: int = 10
    percent: float = 20.0
    approval: Literal["never", "deletes", "always"] = "never"
    kinds: Mapping[str, int] = {}
    hourly_count: int = 20
    hourly_percent: float = 40.0

    def allowance(self, inventory: int) -> int:
        """Keys that may go without approval when the source owns ``inventory``; at least 1."""
        return max(1, min(self.count, int(inventory * self.percent / 100)))

    def hourly_allowance(self, inventory: int) -> int:
        """Keys that may go within an hour without approval; at least as many as in one run."""
        hourly = min(self.hourly_count, int(inventory * self.hourly_percent / 100))
        return max(self.allowance(inventory), hourly)


class PlannerInput(msgspec.Struct, frozen=True):
    """Input of the planner.

    ``keys`` are looked at, each once, and nothing else. ``locations`` gives every location of each GVC concerned,
    ``engines`` the engine by location of those that the settings bind (``""`` for resources without a place).
    ``inventory`` counts the keys that the source owns. ``approved`` holds what an operator let go as ``SOURCE/DIGEST``,
    of all that was held or of a single step of a run that was cut short. ``external`` are keys (as text) that exist
    elsewhere, so that nobody here can tell how they are. ``suspended`` keys are left as they are, ``orphans`` are never
    deleted, each with who said so. ``recent_deletes`` are keys that runs deleted within the last hour without approval,
    each with the time (ISO 8601) until which it counts. ``drifts`` are to be healed: there the records do not say what
    there is.
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
    external: frozenset[str] = frozenset()
    suspended: frozenset[Key] = frozenset()
    orphans: Mapping[Key, str] = {}
    drifts: Mapping[StepId, Drift] = {}
    recent_deletes: Mapping[str, str] = {}

    def places(self, key: Key) -> tuple[str, ...]:
        """Where ``key`` shall exist: the bound locations of its GVC, or ``("",)`` where it has no place."""
        if key.kind not in PLACED:
            return ("",)
        return tuple([place for place in self.locations.get(key.gvc, ()) if place in self.engines]) or ("",)


class Refusal(msgspec.Struct, frozen=True, order=True):
    """A desired change that the recorded state forbids; ``pointer`` says which value of the manifest asks for it."""

    key: Key
    pointer: str
    rule: str
    message: str
    suggestion: str
