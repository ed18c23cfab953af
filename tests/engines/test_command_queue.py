"""The queue of commands: their order, their ends, and what a crash leaves of them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.execution.command_queue import CommandQueue
from reconciler.engines.protocol import Observation
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.errors import EngineError, RecordsError
from reconciler.model.key import Key
from reconciler.model.record import Health
from reconciler.records.store import FILE
from reconciler.records.tables.commands import NewCommand, Precondition, StoredCommand
from reconciler.records.tables.desired import DesiredEntry
from reconciler.records.tables.sources import SourceRow
from tests.support.clock import FakeClock
from tests.support.engines import LedgerEngine
from tests.support.plans import ExecutorHarness
from tests.support.records import record

DATA, OTHER, JOB = "volumeset/shop/data", "volumeset/shop/other", "workload/shop/job"
SECRET = "hunter2"
OVERRIDES = [{"name": "main", "env": [{"name": "TOKEN", "value": SECRET}]}]


class CommandLedger(LedgerEngine):
    """Writes down each command that it performs, after ``gate`` is open; ``errors`` are by the id of the snapshot."""

    def __init__(self, path: Path, parallel: int = 4) -> None:
        super().__init__(path, parallel=parallel)
        self._file = path / "commands.jsonl"
        self.errors: dict[str, BaseException] = {}
        self.running: list[str] = []
        self.seen: list[Observation] = []

    async def observe(self) -> list[Observation]:
        """What the test says."""
        return self.seen

    @property
    def done(self) -> list[dict[str, Any]]:
        """The commands that took effect."""
        return [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []

    async def command(self, key: Key, name: str, spec: dict[str, Any], command_id: str = "") -> dict[str, Any]:
        """Perform it."""
        label = spec.get("snapshotName", name)
        self.running.append(label)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if label in self.errors:
                raise self.errors[label]
            with self._file.open("a") as file:
                file.write(json.dumps({"key": str(key), "label": label, "id": command_id, "spec": spec}) + "\n")
        finally:
            self.running.remove(label)
        return {"name": f"{key.name}-1"}


class CommandHarness(ExecutorHarness):
    """Records, and one engine that takes commands."""

    def __init__(self, path: Path, parallel: int = 4) -> None:
        super().__init__(path, FakeClock())
        self.engine = CommandLedger(path / "here", parallel)
        self.engines["here"] = self.engine
        self.ended = asyncio.Event()

    def queue(self) -> CommandQueue:
        """A queue as a newly started daemon makes it."""
        return CommandQueue(self.records, self.engines)

    def snapshot(
        self, name: str, key: str = DATA, index: int = 0, location: str = "here", kind: str = "createVolumeSnapshot"
    ) -> str:
        """Request a snapshot."""
        spec = {"location": location, "volumeIndex": index, "snapshotName": name}
        return self.records.commands.add(NewCommand(key, location, kind, spec, "ann"))

    async def finish(self, queue: CommandQueue) -> None:
        """Perform all that there is."""
        await queue.advance(self.ended.set)
        while any(each.is_open for each in self.records.commands.open()):
            await self.ended.wait()
            self.ended.clear()
            await queue.advance(self.ended.set)

    def get(self, name: str) -> StoredCommand:
        """A command that is there."""
        found = self.records.commands.get(name)
        assert found is not None
        return found

    def events(self, key: str = DATA) -> list[tuple[str, str]]:
        """Reasons and messages."""
        return [(each.reason, each.message) for each in self.records.events.list(key)]


def play(path: Path, story: Callable[[CommandHarness], Coroutine[Any, Any, None]], parallel: int = 4) -> None:
    async def run() -> None:
        harness = CommandHarness(path, parallel)
        with closing(harness.records):
            await story(harness)

    asyncio.run(run())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_proof_holds_back_no_command_on_the_volume(tmp_path: Path) -> None:
    async def story(harness: CommandHarness) -> None:
        harness.engine.gate = asyncio.Event()
        harness.snapshot("proof", kind="verifyVolumeSnapshot")
        harness.snapshot("another", kind="verifyVolumeSnapshot")
        harness.snapshot("a")
        queue = harness.queue()
        await queue.advance(harness.ended.set)
        await turns()
        assert harness.engine.running == ["proof", "a"]
        harness.engine.gate.set()
        await harness.finish(queue)

    play(tmp_path, story)


def test_commands_on_a_volume_follow_one_another_and_other_volumes_do_not_wait(tmp_path: Path) -> None:
    async def story(harness: CommandHarness) -> None:
        harness.engine.gate = asyncio.Event()
        for name, key, index in (("a", DATA, 0), ("b", DATA, 0), ("c", DATA, 1), ("d", OTHER, 0), ("e", DATA, 0)):
            harness.snapshot(name, key, index)
        queue = harness.queue()
        await queue.advance(harness.ended.set)
        await turns()
        assert harness.engine.running == ["a", "c", "d"]
        assert [command.stage.value for command in harness.records.commands.open()] == [
            "running",
            "pending",
            "running",
            "running",
            "pending",
        ]
        harness.engine.gate.set()
        await harness.finish(queue)
        labels = [mapping["label"] for mapping in harness.engine.done]
        assert sorted(labels) == ["a", "b", "c", "d", "e"]
        assert [label for label in labels if label in "abe"] == ["a", "b", "e"]
        assert harness.events()[0] == (
            "CommandCompleted",
            "ann: createVolumeSnapshot: the snapshot a of volume 0 is taken",
        )

    play(tmp_path, story)


def test_a_location_performs_no_more_commands_at_once_than_its_engine_does_steps(tmp_path: Path) -> None:
    async def story(harness: CommandHarness) -> None:
        harness.engine.gate = asyncio.Event()
        for index in range(5):
            harness.snapshot(str(index), index=index)
        await (queue := harness.queue()).advance(harness.ended.set)
        await turns()
        assert harness.engine.running == ["0", "1"]
        await queue.close()

    play(tmp_path, story, parallel=2)


def test_a_command_that_a_crash_interrupted_is_performed_again_with_its_id(tmp_path: Path) -> None:
    async def story(harness: CommandHarness) -> None:
        harness.engine.gate = asyncio.Event()
        first, second = harness.snapshot("a"), harness.snapshot("b")
        queue = harness.queue()
        await queue.advance(harness.ended.set)
        await turns()
        await queue.close()
        assert (harness.get(first).stage, harness.get(second).stage) == ("running", "pending")
        harness.engine.gate = None
        # It takes effect, and the program ends before that is recorded.
        lost = harness.queue()
        await lost.advance(harness.ended.set)
        await turns()
        assert harness.get(first).stage == "running"
        await harness.finish(harness.queue())
        assert [(mapping["label"], mapping["id"]) for mapping in harness.engine.done] == [
            ("a", first),
            ("a", first),
            ("b", second),
        ]
        assert {harness.get(text).stage for text in (first, second)} == {"completed"}

    play(tmp_path, story)


FAILURES: Sequence[tuple[str, BaseException, str]] = (
    ("refused", EngineError("there is no volume 7", retry=False), "EngineFailed: there is no volume 7"),
    ("bug", ValueError(SECRET), "InternalError: ValueError at tests"),
)


def test_a_failure_or_a_bug_ends_one_command_and_the_others_go_on(tmp_path: Path) -> None:
    async def story(harness: CommandHarness) -> None:
        harness.engine.errors = {label: error for label, error, _ in FAILURES}
        ids = [harness.snapshot(label) for label, *_ in FAILURES]
        good, nowhere = harness.snapshot("good"), harness.snapshot("far", location="mars")
        await harness.finish(harness.queue())
        for name, (_, _, message) in zip(ids, FAILURES, strict=True):
            [text] = harness.get(name).messages
            assert text.startswith(message.split(" at tests")[0])
        assert [harness.get(name).stage.value for name in (*ids, good, nowhere)] == [
            "failed",
            "failed",
            "completed",
            "failed",
        ]
        assert harness.get(nowhere).messages == ("NotFound: this host does not bind mars",)
        assert SECRET not in str(harness.events())
        assert [reason for reason, _ in harness.events()].count("CommandFailed") == 3

    play(tmp_path, story)


def test_secret_values_reach_the_engine_and_are_nowhere_afterwards(tmp_path: Path) -> None:
    async def story(harness: CommandHarness) -> None:
        spec = {"location": "here", "containerOverrides": OVERRIDES}
        name = harness.records.commands.add(NewCommand(JOB, "here", "runCronWorkload", spec, "ann"))
        await harness.finish(harness.queue())
        assert harness.engine.done[0]["spec"] == spec
        ended = harness.get(name)
        assert ended.messages == ("the execution job-1",)
        assert ended.spec["containerOverrides"] == [{"name": "main", "env": [{"name": "TOKEN", "value": "***"}]}]
        assert SECRET not in str(harness.events(JOB))

    play(tmp_path, story)


def test_a_cancelled_command_is_not_performed(tmp_path: Path) -> None:
    async def story(harness: CommandHarness) -> None:
        name = harness.snapshot("a")
        [command] = harness.records.commands.open()
        harness.records.commands.finish(name, command.stage.CANCELLED, ["ann cancelled it"], command.spec)
        assert not harness.records.commands.start(name)
        await harness.queue().advance(harness.ended.set)
        assert harness.engine.done == []

    play(tmp_path, story)


def test_the_effect_and_the_end_of_a_recorded_command_are_one_transaction(tmp_path: Path) -> None:
    async def story(harness: CommandHarness) -> None:
        harness.engines["here"] = RecordedEngine(harness.records, "here", "acme", "example.net", harness.clock)
        volume = {"index": 0, "lifecycle": "bound", "currentSize": 10}
        state = json.dumps({"name": "here", "volumes": [volume]}).encode()
        harness.records.applied.put_many([record(DATA, {"spec": {"initialCapacity": 10}}, "here", state=state)])
        name = harness.snapshot("a")
        queue = harness.queue()
        with closing(sqlite3.connect(tmp_path / FILE)) as other:
            other.execute(
                "CREATE TRIGGER full BEFORE UPDATE ON commands WHEN new.stage = 'completed' "
                "BEGIN SELECT RAISE(ABORT, 'no room'); END"
            )
            with pytest.raises(RecordsError, match="no room"):
                await queue.advance()
            other.execute("DROP TRIGGER full")
        assert b'"a"' not in harness.records.applied.get(DATA)[0].state
        assert harness.get(name).stage == "pending"
        await queue.advance()
        assert (harness.get(name).stage, harness.get(name).started) == ("completed", harness.clock.now())
        [volume] = json.loads(harness.records.applied.get(DATA)[0].state)["volumes"]
        assert [each["name"] for each in volume["volumeSnapshots"]] == ["a"]
        assert harness.records.status_queue.take("main").keys == [DATA]

    play(tmp_path, story)


def test_a_command_waits_for_the_commit_of_its_source_and_ends_with_the_source(tmp_path: Path) -> None:
    async def story(harness: CommandHarness) -> None:
        wait = Precondition("main", "c1", Key.parse(JOB))
        spec = {"location": "here", "volumeIndex": 0, "snapshotName": "a"}
        first, second = [
            harness.records.commands.add(NewCommand(DATA, "here", "restoreVolume", spec, "ann", wait)) for _ in range(2)
        ]
        harness.records.sources.put(SourceRow("main", "main", "c2", "t2", "s1"))
        harness.records.applied.put_many([record(JOB, {}, "here", digest="old")])
        harness.records.desired.replace("main", [], [DesiredEntry(JOB, "main", "job.yaml", 0, 1, "b", "new")])
        for commit, digest in (("c2", "new"), ("c1", "old")):
            harness.records.sources.put(SourceRow("main", "main", commit, "t", "s1"))
            harness.records.applied.put_many([record(JOB, {}, "here", digest=digest)])
            await harness.queue().advance(harness.ended.set)
            assert harness.get(first).stage == "pending"
        harness.records.applied.put_many([record(JOB, {}, "here", digest="new")])
        queue = harness.queue()
        await queue.advance(harness.ended.set)
        assert (harness.get(first).stage, harness.get(second).stage) == ("running", "pending")
        await harness.ended.wait()
        harness.records.sources.forget("main")
        await queue.advance(harness.ended.set)
        assert (harness.get(first).stage, harness.get(second).stage) == ("completed", "cancelled")
        assert harness.get(second).messages == ("main is no longer in the settings",)
        assert [reason for reason, _ in harness.events()] == ["CommandCompleted", "CommandCancelled"]

    play(tmp_path, story)


def test_what_a_completed_command_did_is_recorded_with_its_end(tmp_path: Path) -> None:
    """Who waits for a snapshot and lists snapshots then finds it, before anything is observed again."""

    async def story(harness: CommandHarness) -> None:
        before = record(DATA, {}, "here")
        harness.records.applied.put(before)
        after = Observation(before.key, "here", Health.UNHEALTHY, b'{"after": 1}', before.digest, before.version)
        harness.engine.seen = [msgspec.structs.replace(after, key=Key.parse(OTHER)), after]
        harness.snapshot("first")
        await harness.finish(harness.queue())
        applied = harness.records.applied.at(DATA, "here")
        assert applied is not None
        assert (applied.health, applied.state) == (Health.UNHEALTHY, b'{"after": 1}')
        harness.engine.seen = [msgspec.structs.replace(after, digest="another", state=b'{"another": 1}')]
        harness.snapshot("second")
        await harness.finish(harness.queue())
        assert harness.records.applied.at(DATA, "here") == applied, "another version says nothing about this one"

    play(tmp_path, story)
