"""The data of applied secrets, for engines that run workloads."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.records.store import Records
from reconciler.settings import Settings


class Vault:
    """Reads secrets that are applied."""

    def __init__(self, records: Records, settings: Settings) -> None:
        self._records = records
        self._settings = settings

    def reveal(self, key: Key) -> Any:
        """The data of ``key``. Raises EngineError."""
        for record in self._records.applied.get(key):
            seal = self._records.seals.get(key, record.digest)
            if seal:
                return msgspec.json.decode(seal)
        raise EngineError(f"{key} cannot be opened", reason="SecretUnavailable")
