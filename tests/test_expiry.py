"""What expires: only by a clock that has held for an hour, and never because it was set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.access.people import Person
from reconciler.access.rules import Caller
from reconciler.access.store import ANSWER_SECONDS, AccessStore
from reconciler.clock import CLOCK_FILE, HOLD, UNKNOWN, SeenTime, SystemClock, read_seen_time
from reconciler.engines.host.logs.retention import expire_logs
from reconciler.model.key import Key
from reconciler.records.store import Records
from reconciler.records.tables.commands import KEEP_SECONDS, CommandStage, NewCommand
from reconciler.times import ExpiryTime
from tests.support.clock import START, FakeClock

DAY = 86_400.0
CALLER = Caller("org/acme", frozenset(), "session")
KEY = Key.parse("workload/shop/web")
JUMPS = pytest.mark.parametrize("jump", [400 * DAY, -400 * DAY, 54 * 365 * DAY], ids=["+400d", "-400d", "+54y"])


class Stores:
    """Everything in the two databases that ends at a time, and whether it is still there."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.records = Records.open(None, clock_now=self.clock.now, expiry=self.clock.expiry)
        self.access = AccessStore.open(path, self.clock)
        self.commands: list[str] = []

    def fill(self) -> None:
        """Make one of each, which lasts for a day or longer."""
        records, until = self.records, self.clock.now() + DAY
        self.commands = [records.commands.add(NewCommand(KEY, "here", "runCronWorkload", {}, "ada"))]
        records.commands.finish(self.commands[0], CommandStage.COMPLETED, (), {})
        records.suspensions.put("source/main", "a look", "ada", until)
        records.traffic_holds.put(KEY, "a look", "ada", until)
        records.mutes.put("all", "a look", "ada", until)
        records.deletions.add("main", [KEY], self.clock.expiry())
        records.heal_counts.add(KEY, "here", "d1", self.clock.expiry())
        self.access.begin_answer("ada", "one", b"", "r1")
        self.session = self.access.add_session(CALLER, DAY)
        self.login, _ = self.access.people.begin_login(Person("ada", self.clock.now()), (), DAY)

    def sweep(self) -> None:
        """Do all that deletes what is over."""
        other = self.records.commands.add(NewCommand(KEY, "here", "runCronWorkload", {}, "ada"))
        self.records.commands.finish(other, CommandStage.COMPLETED, (), {})
        for each in self.records.suspensions.over():
            self.records.suspensions.remove(each.target)
        for hold in self.records.traffic_holds.over():
            self.records.traffic_holds.remove(hold.key)
        self.records.mutes.sweep()
        self.records.deletions.add("other", [KEY], self.clock.expiry())
        self.access.begin_answer("ada", "two", b"", "r2")
        self.access.add_session(CALLER, 1.0)
        self.access.people.begin_login(Person("bob", self.clock.now()), (), 1.0)

    def there(self) -> dict[str, bool]:
        """What is there of the first ones, by the clock of now."""
        return {
            "command": self.records.commands.get(self.commands[0]) is not None,
            "suspension": self.records.suspensions.get("source/main") is not None,
            "hold": bool(self.records.traffic_holds.all()),
            "mute": bool(self.records.mutes.all()),
            "delete": str(KEY) in self.records.deletions.recent("main", self.clock.expiry()),
            "answer": self.access.begin_answer("ada", "one", b"", "r3") is not None,
            "session": self.access.session(self.session) is not None,
            "login": self.access.people.login(self.login.id) is not None,
        }


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    opened = Stores(tmp_path)
    yield opened
    opened.access.close()
    opened.records.close()


@JUMPS
async def test_a_clock_that_is_wrong_for_a_moment_destroys_nothing(stores: Stores, jump: float) -> None:
    stores.fill()
    stores.clock.jump(jump)
    for _ in range(3):
        stores.sweep()
        await stores.clock.advance(15.0)
    valid = stores.there()
    assert valid["session"] == valid["login"] == (jump < 0), "what has ended by the clock of now admits nobody"
    assert all(there for name, there in valid.items() if name not in ("session", "login"))
    stores.clock.jump(-jump)
    stores.sweep()
    assert stores.there() == dict.fromkeys(valid, True)


async def test_a_clock_that_was_set_for_good_ends_what_is_over_after_an_hour(stores: Stores) -> None:
    stores.fill()
    stores.clock.jump(400 * DAY)
    await stores.clock.advance(HOLD)
    stores.sweep()
    stores.clock.jump(-400 * DAY)
    assert set(stores.there().items()) <= {(name, False) for name in stores.there()} | {("answer", True)}


async def test_what_is_made_after_a_jump_ends_by_the_clock_of_then(stores: Stores) -> None:
    stores.clock.jump(400 * DAY)
    stores.records.suspensions.put("source/main", "a look", "ada", stores.clock.now() + 600.0)
    assert stores.records.suspensions.seconds_left() == 600.0
    await stores.clock.advance(600.0)
    assert [each.target for each in stores.records.suspensions.over()] == ["source/main"]


def test_a_suspended_machine_ends_what_is_over_at_once(stores: Stores) -> None:
    stores.fill()
    stores.clock.suspend(max(KEEP_SECONDS, ANSWER_SECONDS) + 1.0)
    stores.sweep()
    assert not any(there for name, there in stores.there().items() if name != "answer")


def test_a_session_that_began_while_the_clock_was_ahead_ends_with_that(stores: Stores) -> None:
    stores.clock.jump(400 * DAY)
    session = stores.access.add_session(CALLER, DAY)
    login, _ = stores.access.people.begin_login(Person("ada", stores.clock.now()), (), DAY)
    assert stores.access.session(session) is not None
    assert stores.access.people.login(login.id) is not None
    stores.clock.jump(-400 * DAY)
    assert stores.access.session(session) is None
    assert stores.access.people.login(login.id) is None


@pytest.mark.parametrize(("age", "there"), [(20.0, False), (3.0, True)])
def test_logs_of_removed_replicas_expire_after_a_jump_that_holds(tmp_path: Path, age: float, there: bool) -> None:
    segment = tmp_path / "shop" / "web" / "web-1" / "main" / "1-1.rlog"
    segment.parent.mkdir(parents=True)
    segment.touch()
    now = segment.stat().st_mtime
    expire_logs(tmp_path, ExpiryTime(now + 400 * DAY, now + DAY, now + 400 * DAY), 7 * DAY, ())
    assert segment.exists()
    expire_logs(tmp_path, ExpiryTime(now + age * DAY, now + age * DAY), 7 * DAY, ())
    assert segment.exists() is there


def observe(*steps: tuple[float, float], boot: str = "b", seen: SeenTime = UNKNOWN) -> tuple[SeenTime, ExpiryTime]:
    """What is seen in steps of a wall clock and a monotonic clock."""
    for now, monotonic in steps:
        seen = seen.observe(now, monotonic, boot)
    return seen, seen.expiry(*steps[-1], steps[0][1])


def test_a_host_whose_time_was_never_seen_lets_nothing_expire_for_an_hour() -> None:
    seen, expiry = observe((START, 10.0))
    assert not expiry.is_over(START - 1.0, START - DAY)
    assert expiry.is_over(START, START), "but what was made since does"
    _, expiry = observe((START + HOLD, 10.0 + HOLD), seen=seen)
    assert expiry.is_over(START - 1.0, START - DAY)


def test_a_clock_at_1970_that_is_corrected_counts_for_nothing_before_an_hour() -> None:
    seen, expiry = observe((20.0, 20.0), (30.0, 30.0), (START + 40.0, 40.0))
    assert not expiry.is_over(2 * HOLD, 30.0)
    _, expiry = observe((START + HOLD, HOLD), seen=seen)
    assert not expiry.is_over(2 * HOLD, 30.0), "40 s are missing"
    _, expiry = observe((START + 40.0 + HOLD, 40.0 + HOLD), seen=seen)
    assert expiry.is_steady


def test_a_jump_while_no_daemon_runs_is_known_by_the_time_of_the_former_one() -> None:
    seen, _ = observe((START, 10.0))
    seen, _ = observe((START + HOLD, 10.0 + HOLD), seen=seen)
    later = (START + HOLD + 2 * DAY, 10.0 + HOLD + 2 * DAY)
    assert observe(later, seen=seen)[1].is_steady, "the monotonic clock has counted the time between"
    ahead = (later[0] + 400 * DAY, later[1])
    assert observe(ahead, seen=seen)[1] == ExpiryTime(ahead[0], later[0], ahead[0], 400 * DAY)
    rebooted = observe((START + HOLD + 120.0, 60.0), boot="c", seen=seen)[1]
    assert rebooted.is_steady
    long_after = observe((START + 9 * DAY, 60.0), boot="c", seen=seen)[1]
    assert (long_after.is_steady, long_after.steady, long_after.jump) == (False, START + HOLD, 0.0)
    back = observe((START, 60.0), boot="c", seen=seen)[1]
    assert (back.is_steady, back.jump) == (False, -HOLD), "no machine is off for a negative time"


def test_a_jump_counts_from_what_the_clock_has_shown_before() -> None:
    _, expiry = observe((START, 10.0))
    assert expiry.jump == 0.0, "the first time that is seen was not set"
    seen, _ = observe((START, 10.0), (START + HOLD, 10.0 + HOLD), (START + 3 * HOLD, 20.0 + HOLD))
    assert seen.jump == 2 * HOLD - 10.0
    assert seen.observe(START + 2 * HOLD, 20.0 + HOLD, "b").jump == -HOLD


def test_the_clock_of_the_host_is_remembered_and_readers_know_it(tmp_path: Path) -> None:
    file = tmp_path / CLOCK_FILE
    reader = SystemClock(tmp_path)
    assert not reader.expiry().is_steady
    assert not file.exists(), "a reader writes nothing"
    writer = SystemClock(tmp_path, writes=True)
    assert not writer.expiry().is_steady
    seen = read_seen_time(file)
    assert (seen.jumped, reader.expiry().since) == (seen.jumped, pytest.approx(writer.expiry().since, abs=5.0))
    file.write_text(json.dumps(seen._replace(since=seen.since - HOLD - 1.0)))
    assert SystemClock(tmp_path, writes=True).expiry().is_steady
    assert reader.expiry().is_steady
    for damaged in ("", "[1, 2]", "{", '["a", "b", "c", "d", "e"]'):
        file.write_text(damaged)
        assert not reader.expiry().is_steady


def test_a_clock_goes_on_without_a_disk(tmp_path: Path) -> None:
    assert not SystemClock(tmp_path / "gone", writes=True).expiry().is_steady


ROOT = Path(__file__).parents[1] / "reconciler"
EXPIRES: dict[str, str] = {
    "access/people.py": "logins, and what is remembered of removed users",
    "access/store.py": "sessions, and answers to requests with an idempotency key",
    "api/authentication.py": "idle logins",
    "changes/outbox.py": "events of changes that were never made",
    "drift/monitor.py": "the count of heals",
    "engines/host/dataplane/acme/issuer.py": "nothing: times of orders that lie in the future",
    "engines/host/housekeeping.py": "nothing: it looks at the clock often",
    "engines/host/images/space.py": "unused images",
    "engines/host/logs/collector.py": "logs of removed replicas",
    "engines/kubernetes/volumes/releases.py": "nothing: how long snapshots before a release last",
    "engines/kubernetes/volumes/watcher.py": "snapshots",
    "engines/host/volumesets/releases.py": "nothing: how long snapshots before a release last",
    "engines/host/volumesets/watcher.py": "snapshots",
    "pipeline/source_pipeline.py": "the hourly budget of deletes, and the count of heals",
    "records/notifications/troubles.py": "mutes",
    "status/backup_monitor.py": "nothing: how old a backup may be",
    "records/tables/commands.py": "commands that ended",
    "records/tables/requests.py": "answers that were never read",
    "records/tables/suspensions.py": "suspensions, and holds of requests",
}
"""Where something is destroyed because time has passed, and what."""
BY_NOW = re.compile(r"DELETE FROM \w+ WHERE[^\"]*\b(at|ends|expires|finished|until|created|used)\b [<>]=? \?")
NOT_DESTROYED = {"records/tables/drift.py": "heals from the future, which count for nothing"}


def test_all_that_is_destroyed_because_time_passed_asks_for_the_expiry_time() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.rglob("*.py")}
    asking = {path for path, text in texts.items() if re.search(r"\b_?(clock|expiry)\.?(expiry)?\(\)", text)}
    calls = {path for path in asking if re.search(r"\.expiry\(\)|_expiry\(\)", texts[path])}
    assert calls == set(EXPIRES)
    assert {path for path, text in texts.items() if BY_NOW.search(text)} == set(NOT_DESTROYED)
