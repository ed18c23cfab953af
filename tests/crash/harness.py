"""Runs the same three commits through daemons that die and daemons that do not, and returns how each series ended."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.records.store import FILE, Records
from tests.crash import repository
from tests.crash.daemon_with_ledger import POINTS
from tests.support.git import File
from tests.support.sandbox import STATUS, DaemonProcess, DaemonSandbox, eventually

PHASES: Sequence[Mapping[str, File]] = (repository.first(), repository.second(), repository.third())
"""The commits, one after another."""
SECRET_KEY = bytes(range(32))
"""The same for all sandboxes, so that digests of secret data can be compared."""
DONE = ("applied", "unchanged", "waiting")


@dataclass(frozen=True)
class Kill:
    """When a daemon dies: at a point of the program, or some seconds after it began to work."""

    point: str = ""
    after: float = 0.0


@dataclass(frozen=True)
class Ending:
    """The final state when nothing is left to do, without times."""

    records: dict[str, tuple[object, ...]]
    resources: dict[str, tuple[str, int]]
    performed: set[str]
    status: str


@dataclass
class CrashHarness:
    """One repository and state directory, and the ledger of all that was ever done there."""

    sandbox: DaemonSandbox
    ledger: Path
    kills: int = 0
    repeated: int = 0
    slowest: float = 0.0
    points: Counter[str] = field(default_factory=Counter)

    @classmethod
    def create(cls, path: Path) -> CrashHarness:
        """A new one, with nothing committed."""
        sandbox = DaemonSandbox(path, {}, prune={"count": 1000, "percent": 100})
        Records.open(sandbox.state / FILE).close()
        with closing(sqlite3.connect(sandbox.state / FILE, isolation_level=None)) as database:
            database.execute("UPDATE meta SET value = ? WHERE name = 'secret_key'", (SECRET_KEY,))
        return cls(sandbox, path / "ledger.jsonl")

    def go_through(self, kills: Sequence[Sequence[Kill]]) -> list[Ending]:
        """Commit, let daemons die, let one finish; the state after each of the PHASES."""
        endings = []
        for files, deaths in zip(PHASES, kills, strict=True):
            self.sandbox.repo.commit(files)
            for kill in deaths:
                self.let_die(kill)
                self.check()
            endings.append(self.finish())
        return endings

    def let_die(self, kill: Kill) -> None:
        """Run a daemon until ``kill`` ends it, or until it has nothing left to do."""
        with self.daemon(kill.point) as daemon:
            if kill.point:
                eventually(
                    lambda: daemon.process.poll() is not None or self.is_done(daemon), "it dies or ends its work"
                )
                died = daemon.process.poll() is not None
                self.points[kill.point.partition(":")[0]] += died
            else:
                time.sleep(kill.after)
        self.kills += 1

    def check(self, *, read_only: bool = False) -> None:
        """Check the invariant: recorded steps were performed, and performed steps are recorded or journaled."""
        records = Records.open(self.sandbox.state / FILE, read_only=read_only)
        try:
            recorded = {_place(r.key, r.location): (r.digest, r.version) for r in records.applied.items()}
            journaled = {_place(row.key, row.location) for row in records.journal.open()}
        finally:
            records.close()
        resources = self.resources()
        places = (recorded.keys() | resources.keys()) - journaled
        lost = {at: (recorded.get(at), resources.get(at)) for at in places if recorded.get(at) != resources.get(at)}
        assert lost == {}, f"recorded and done differ: {lost}"

    def finish(self) -> Ending:
        """Run a daemon until it has nothing left to do, and end it in peace."""
        with self.daemon() as daemon:
            began = time.monotonic()
            eventually(lambda: self.is_done(daemon), "it ends its work")
            self.slowest = max(self.slowest, time.monotonic() - began)
            assert daemon.stop() == 0
            assert daemon.logged("records") == []
        return self._ending()

    def is_done(self, daemon: DaemonProcess) -> bool:
        """Whether ``daemon`` has finished a run and written its status."""
        if not [run for run in daemon.logged("reconciled") if run["outcome"] in DONE]:
            return False
        with self.sandbox.records() as records:
            return records.status_queue.count("main") == 0

    def resources(self) -> dict[str, tuple[str, int]]:
        """Place to digest and version of what there is according to the ledger."""
        existing: dict[str, tuple[str, int]] = {}
        for line in self._lines():
            resource = _place(line["key"], line["at"])
            if line["action"] == "delete":
                existing.pop(resource, None)
            else:
                existing[resource] = (line["digest"], line["version"])
        return existing

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []

    def records(self) -> dict[str, tuple[object, ...]]:
        """The records without times; no step is open, and no status waits to be written."""
        with self.sandbox.records() as records:
            assert records.journal.open() == []
            assert records.status_queue.count("main") == 0
            return {
                _place(r.key, r.location): (r.digest, r.version, r.body, r.health, r.alias, r.revision, r.engine)
                for r in records.applied.items()
            }

    def _ending(self) -> Ending:
        lines = [json.dumps(line) for line in self._lines()]
        self.repeated = len(lines) - len(set(lines))
        return Ending(self.records(), self.resources(), set(lines), self._read_status())

    def _read_status(self) -> str:
        """The files of the status branch with their ids, and those that name the daemon without its name."""
        git, naming = self.sandbox.repo.git, ("README.md", "reconciler.yaml")
        listed = [line for line in git("ls-tree", "-r", STATUS).splitlines() if not line.endswith(naming)]
        texts = [git("show", f"{STATUS}:{name}").replace(str(self.sandbox.state), "STATE") for name in naming]
        return "\n".join([*listed, *(re.sub(r"\ndaemon:\n  id: .*", "", text) for text in texts)])

    def daemon(self, point: str = "") -> AbstractContextManager[DaemonProcess]:
        """A daemon with a ledger that dies at ``point``."""
        return self.sandbox.daemon("-m", "tests.crash.daemon_with_ledger", str(self.ledger), point)


def assert_same(endings: list[Ending], expected: list[Ending]) -> None:
    """Equal records, equal status branch, every step performed, nothing recorded that was not."""
    for ending, expected_ending in zip(endings, expected, strict=True):
        different = {
            resource: (ending.records.get(resource), expected_ending.records.get(resource))
            for resource in ending.records.keys() | expected_ending.records.keys()
            if ending.records.get(resource) != expected_ending.records.get(resource)
        }
        assert different == {}, f"recorded, and expected: {different}"
        assert {resource: found[:2] for resource, found in ending.records.items()} == ending.resources
        assert expected_ending.performed - ending.performed == set()
        assert ending.performed - expected_ending.performed == set()
        assert ending.status == expected_ending.status


def random_kill(chance: random.Random, seconds: float) -> Kill:
    """Any moment of a run that takes ``seconds``, or any point of the program."""
    if chance.random() < 0.5:
        return Kill(after=chance.uniform(0, seconds))
    point = chance.choice(POINTS)
    return Kill(f"{point}:{chance.randint(1, 1 if point.startswith('mov') else 12)}")


def _place(key: object, location: str) -> str:
    return f"{key}@{location}".rstrip("@")
