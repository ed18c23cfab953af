"""A second engine, for tests: a ledger that only grows and a map of what there is, both files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconciler.engines.protocol import Observation, Outcome, Result
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.record import Health
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason


class Crash(BaseException):
    """The program dies here."""


class LedgerEngine:
    """Can be set to fail, to be slow, to break, and to die. ``most`` is how many steps were ever in flight at once.

    ``fail`` counts down the failures of a key, ``refuse`` fails for good, ``bug`` names keys that meet a bug,
    ``unhealthy`` ones that come up Loading. ``gate`` holds every step until it is set; ``before`` and ``after`` are
    called around the change of the resources.
    """

    name = "ledger"
    immediate = False
    can_drift = True

    def __init__(self, path: Path, location: str = "here", parallel: int = 4) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._ledger = path / "ledger.jsonl"
        self._map = path / "world.json"
        self.location = location
        self.parallel = parallel
        self.fail: dict[str, int] = {}
        self.refuse: set[str] = set()
        self.bug: set[str] = set()
        self.unhealthy: set[str] = set()
        self.gate: asyncio.Event | None = None
        self.before: Callable[[str], None] = _nothing
        self.after: Callable[[str], None] = _nothing
        self.in_flight = 0
        self.most = 0

    def performed(self) -> list[str]:
        """Every change so far, as ``action key``, oldest first."""
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        return [f"{line['action']} {line['key']}" for line in map(json.loads, lines)]

    def resources(self) -> dict[str, dict[str, Any]]:
        """Key to what there is."""
        found: dict[str, dict[str, Any]] = json.loads(self._map.read_text()) if self._map.exists() else {}
        return found

    def touched(self) -> int:
        """A number that changes whenever the resources do."""
        return self._map.stat().st_mtime_ns if self._map.exists() else 0

    async def observe(self) -> list[Observation]:
        """What the map contains."""
        return [
            Observation(
                Key.parse(key),
                self.location,
                Health(there["health"]),
                there.get("state", "{}").encode(),
                there["digest"],
                there["version"],
                body=there.get("body", "").encode(),
            )
            for key, there in sorted(self.resources().items())
        ]

    def meddle(self, key: str, **fields: Any) -> None:
        """Change what there is behind the program's back: fields of ``key``, or (without fields) its existence."""
        resources = self.resources()
        there = resources.pop(key, {})
        if fields:
            resources[key] = {"digest": "", "version": 1, "health": Health.HEALTHY, **there, **fields}
        self._write(resources)

    def _write(self, resources: dict[str, dict[str, Any]]) -> None:
        part = self._map.with_suffix(".part")
        part.write_text(json.dumps(resources))
        part.replace(self._map)

    async def perform(self, step: Step) -> Outcome:
        """Write the step down and change the map."""
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(0)
            if self.gate is not None:
                await self.gate.wait()
            return self._perform(step)
        finally:
            self.in_flight -= 1

    async def command(self, key: Key, name: str, spec: dict[str, Any], command_id: str = "") -> dict[str, Any]:
        """There are none."""
        raise EngineError(f"{key} takes no command {name}", retry=False)

    def _perform(self, step: Step) -> Outcome:
        key = str(step.key)
        self.before(key)
        self._trouble(key)
        health = Health.LOADING if key in self.unhealthy else Health.HEALTHY
        resources = self.resources()
        if step.action is Action.DELETE:
            resources.pop(key, None)
        else:
            resources[key] = {"digest": step.digest, "version": step.version, "health": health}
        with self._ledger.open("a") as ledger:
            ledger.write(json.dumps({"action": step.action, "key": key, "digest": step.digest}) + "\n")
        self._write(resources)
        self.after(key)
        if step.action is Action.DELETE:
            return Outcome(step.id, Result.APPLIED)
        seen = Observation(step.key, step.location, health, b"{}", step.digest, step.version)
        return Outcome(step.id, Result.APPLIED, seen=seen)

    def _trouble(self, key: str) -> None:
        if key in self.refuse:
            raise EngineError("the ledger refuses", reason=Reason.REFUSED, retry=False)
        if key in self.bug:
            raise KeyError("what a secret text")
        if self.fail.get(key, 0):
            self.fail[key] -= 1
            raise EngineError("the ledger is out of ink", reason=Reason.EXEC_FAILED)


def _nothing(_key: str) -> None:
    pass
