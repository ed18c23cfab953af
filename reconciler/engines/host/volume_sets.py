"""The volume sets of one location: their state is derived from the records, their data are directories."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.engines.host.provisioning.provisioner import Provisioner
from reconciler.engines.protocol import Observation, Outcome, Result
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.model.key import Key
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step


class VolumeSets:
    """Observes volume sets and deletes their volumes; a volume is created when a replica mounts it."""

    def __init__(self, claims: VolumeClaims, provisioner: Provisioner) -> None:
        self._claims = claims
        self._provisioner = provisioner
        self._observations: dict[Key, Observation] = {}

    def observations(self) -> tuple[Observation, ...]:
        """All volume sets."""
        return tuple(self._observations.values())

    def update(self, seen: Iterable[Observation]) -> None:
        """Replace the observations of the same volume sets with ``seen``."""
        self._observations.update({each.key: each for each in seen})

    def perform(self, step: Step) -> Outcome:
        """Perform a step on a volume set. Raises EngineError if its volumes cannot be deleted."""
        past = self._claims.record(step.key)
        if step.action is Action.DELETE:
            self._observations.pop(step.key, None)
            self._provisioner.drop_volumes(step.key)
            return Outcome(step.id, Result.APPLIED)
        if step.action is Action.REPLACE and past is not None and past.digest != step.digest:
            self._provisioner.drop_volumes(step.key)
            past = None
        state = self._claims.state(step, past)
        seen = Observation(step.key, step.location, Health.HEALTHY, state, step.digest, step.version)
        self.update([seen])
        return Outcome(step.id, Result.APPLIED, seen=seen)


def as_recorded(row: Record) -> Observation:
    """The recorded state of a resource, as an observation."""
    return Observation(row.key, row.location, row.health, row.state, row.digest, row.version, row.alias)
