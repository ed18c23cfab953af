"""The records of a location as a plan would make them, and secrets without values: for what shows a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from reconciler.engines.context import LocationRecords
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.secret import TEXTS, Secret, SecretValue
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason
from reconciler.records.store import Records

MASK = "***"


class PlannedRecords(LocationRecords):
    """The records of ``location`` as they are once ``steps`` are performed, for what renders workloads."""

    def __init__(self, records: Records, location: str, steps: Iterable[Step]) -> None:
        super().__init__(records, location)
        self._planned = {
            (step.key, step.location): Record(
                step.key, step.location, "", step.digest, step.body, step.version, step.engine, Health.LOADING
            )
            for step in steps
            if step.action is not Action.DELETE
        }

    def here(self, key: Key) -> Record | None:
        """The record of ``key`` at this location."""
        return self._planned.get((key, self.location)) or super().here(key)

    def all_here(self, engine: str) -> Iterator[Record]:
        """Everything that ``engine`` has at this location."""
        planned = {
            key: record
            for (key, location), record in self._planned.items()
            if location == self.location and record.engine == engine
        }
        others = {record.key: record for record in super().all_here(engine)}
        yield from (record for _, record in sorted({**others, **planned}.items()))

    def find_shared(self, key: Key) -> Record | None:
        """The record of ``key`` that has no location."""
        return self._planned.get((key, "")) or super().find_shared(key)


class SecretShapes:
    """Secrets with their keys, and without values: a plan reads none, and a cluster checks none."""

    def __init__(self, records: LocationRecords) -> None:
        self._records = records

    def read(self, key: Key) -> SecretValue:
        """A secret of the form of ``key``. Raises EngineError."""
        record = self._records.find_shared(key)
        if record is None:
            raise EngineError(f"{key} is not applied", reason=Reason.SECRET_UNAVAILABLE)
        secret = msgspec.json.decode(record.body, type=Secret)
        if secret.type in TEXTS:
            return SecretValue(secret.type, "{}")
        names = Secret(type=secret.type, data=secret.data).key_names()
        return SecretValue(secret.type, dict.fromkeys(names, MASK))
