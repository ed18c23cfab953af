"""Between the journal and the outcome the program may die at any point; replay makes good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.execution.recorder import StepRun
from reconciler.planning.plan import Action
from reconciler.records.tables.journal import NewStep
from tests.support.clock import FakeClock
from tests.support.engines import Crash, LedgerEngine
from tests.support.plans import ExecutorHarness, ends, plan, step

KEYS = [f"workload/shop/w{n}" for n in range(12)]
PLAN = plan(*(step(key, waits_for=KEYS[max(0, at - 3) : at : 2]) for at, key in enumerate(KEYS)))


def start(path: Path) -> tuple[ExecutorHarness, LedgerEngine]:
    """A new program over the files that an earlier one left at ``path``."""
    harness, engine = ExecutorHarness(path, FakeClock(auto=True)), LedgerEngine(path / "here")
    harness.engines["here"] = engine
    return harness, engine


pack = msgspec.msgpack.encode


def die(_key: str) -> None:
    raise Crash


def check(path: Path) -> None:
    """What holds after every crash: nothing is recorded that was not performed, nothing performed is forgotten."""
    harness, engine = start(path)
    performed, journaled = set(engine.resources()), {row.key for row in harness.records.journal.open()}
    assert set(harness.recorded()) <= performed
    assert performed <= set(harness.recorded()) | journaled
    harness.records.close()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("victim", [KEYS[0], KEYS[5], KEYS[11]])
async def test_a_crash_costs_nothing_but_a_repeated_step(tmp_path: Path, moment: str, victim: str) -> None:
    harness, engine = start(tmp_path)
    setattr(engine, moment, lambda key: die(key) if key == victim else None)
    with pytest.raises(Crash):
        await harness.run(PLAN)
    harness.records.close()
    check(tmp_path)

    harness, engine = start(tmp_path)
    replayed = await harness.executor().replay()
    assert victim in ends(replayed)
    assert harness.records.journal.open() == []
    assert set(harness.recorded()) == set(engine.resources())
    rest = [one for one in PLAN.steps if str(one.key) not in harness.recorded()]
    await harness.run(plan(*rest))
    assert sorted(harness.recorded()) == sorted(engine.resources()) == sorted(KEYS)
    repeated = len(engine.performed()) - len(KEYS)
    assert repeated <= (1 if moment == "before" else engine.parallel)


async def test_a_replayed_step_is_recorded_under_its_own_source_revision_and_version(tmp_path: Path) -> None:
    harness, engine = start(tmp_path)
    engine.after = die
    with pytest.raises(Crash):
        await harness.run(plan(step(KEYS[0], version=7)))
    engine.after = lambda _key: None
    await harness.executor().replay()
    (record,) = harness.records.applied.get(KEYS[0])
    assert (record.source, record.revision, record.version) == ("main", "main@sha1:abc", 7)


async def test_of_two_journaled_steps_of_one_key_the_newest_is_repeated(tmp_path: Path) -> None:
    harness, engine = start(tmp_path)
    for action, version in ((Action.CREATE, 1), (Action.UPDATE, 2)):
        one = step(KEYS[0], action=action, version=version)
        harness.records.journal.begin(
            1, [NewStep(one.key, one.location, str(action), pack(StepRun("main", "r", 1, one)))]
        )
    assert ends(await harness.executor().replay()) == {KEYS[0]: "applied"}
    assert engine.performed() == [f"update {KEYS[0]}"]
    assert harness.recorded() == {KEYS[0]: 2}
    assert harness.records.journal.open() == []


async def test_a_step_that_fails_in_replay_is_recorded_as_failed_and_the_journal_is_clear(tmp_path: Path) -> None:
    harness, engine = start(tmp_path)
    engine.before = die
    with pytest.raises(Crash):
        await harness.run(plan(step(KEYS[0])))
    engine.before, engine.refuse = (lambda _key: None), {KEYS[0]}
    assert ends(await harness.executor().replay()) == {KEYS[0]: "failed/Refused"}
    assert harness.records.journal.open() == []
    assert harness.records.failures.get(KEYS[0])[0].reason == "Refused"


async def test_a_run_begins_with_what_an_earlier_one_left_in_the_journal(tmp_path: Path) -> None:
    harness, engine = start(tmp_path)
    engine.before = die
    with pytest.raises(Crash):
        await harness.run(plan(step(KEYS[0], action=Action.DELETE)))
    engine.before = lambda _key: None
    assert ends(await harness.run(plan(step(KEYS[0], version=2)))) == {KEYS[0]: "applied"}
    assert engine.performed() == [f"delete {KEYS[0]}", f"create {KEYS[0]}"]
    assert harness.records.journal.open() == []
    assert harness.recorded() == {KEYS[0]: 2}


async def test_a_replay_of_nothing_is_nothing(tmp_path: Path) -> None:
    harness, _ = start(tmp_path)
    assert await harness.executor().replay() == []


CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.engines.test_crash import PLAN, start
bench, engine = start(Path(sys.argv[1]))
setattr(engine, sys.argv[2], lambda key: os.kill(os.getpid(), signal.SIGKILL) if key == sys.argv[3] else None)
asyncio.run(bench.run(PLAN))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_killed_process_leaves_records_that_replay_completes(tmp_path: Path, moment: str) -> None:
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), moment, KEYS[6]], cwd=root, check=False)
    assert ended.returncode == -9
    check(tmp_path)
    harness, engine = start(tmp_path)
    await harness.executor().replay()
    assert set(harness.recorded()) == set(engine.resources()) >= {KEYS[6]}
    assert harness.records.journal.open() == []
