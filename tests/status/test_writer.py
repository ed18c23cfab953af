"""The status writer over real records and real repositories."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.documents.reader import parse_documents
from reconciler.engines.protocol import Outcome, Result
from reconciler.errors import RecordsError
from reconciler.model.key import Key
from reconciler.model.record import Health
from reconciler.planning.plan import RetainedResource, StepId
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.sources import SourceRow
from reconciler.settings import LocationSettings, Settings, SourceSettings, StatusSettings
from reconciler.source.mirror import Mirror
from reconciler.source.source import Source, open_source
from reconciler.source.url import RepositoryAddress
from reconciler.status import waiting
from reconciler.status.branch.layout import MOST_ENTRIES
from reconciler.status.branch.trees import FEW
from reconciler.status.conditions import make_condition
from reconciler.status.facts import FactsReader
from reconciler.status.publisher import TOGETHER, StatusPublisher
from tests.status.samples import entry, failure, record
from tests.support.clock import FakeClock
from tests.support.git import GitRepo

BRANCH = "reconciler/status"
BODY = b'{"spec": {"staticPlacement": {"locationLinks": ["/org/acme/location/here", "/org/acme/location/away"]}}}'


class World:
    """Records of a small shop, the repository its status goes to, and a clock."""

    def __init__(self, tmp_path: Path, records: Records, clock: FakeClock, **source: Any) -> None:
        self.path = tmp_path
        self.repo = GitRepo.create(tmp_path / "r.git", {"gvc.yaml": "kind: gvc\n"})
        self.records = records
        self.clock = clock
        self.source_settings = SourceSettings(name="main", url=str(self.repo.path), branch="main", **source)
        self.source = open_source(self.source_settings, tmp_path / "state")

    def writer(self, source: Source | None = None) -> StatusPublisher:
        places = {"here": LocationSettings(engine="recorded")}
        settings = Settings("acme", (self.source_settings,), self.path / "state", locations=places)
        return StatusPublisher(self.records, source or self.source, settings, self.clock)

    def shop(self, workloads: int = 2) -> list[str]:
        """Apply a GVC and its workloads; their keys."""
        keys = ["gvc/shop", *(f"workload/shop/w{n}" for n in range(workloads))]
        self.records.desired.replace("main", [], [entry(key) for key in keys])
        for key in keys:
            where = "" if key == "gvc/shop" else "here"
            self.records.applied.put(record(key, where, body=BODY))
        self.touch(*keys)
        return keys

    def touch(self, *keys: str) -> None:
        self.records.status_queue.add_many("main", keys)

    def seen(self, key: str, health: Health, location: str = "here") -> None:
        self.records.applied.update_seen(key, location, health, b"{}")
        self.touch(key)

    def pass_time(self, seconds: float) -> None:
        asyncio.run(self.clock.advance(seconds))

    def files(self, repo: GitRepo | None = None) -> dict[str, str]:
        at = repo or self.repo
        names = at.git("ls-tree", "-r", "--name-only", BRANCH).splitlines()
        return {name: at.git("show", f"{BRANCH}:{name}") for name in names}

    def commits(self, repo: GitRepo | None = None) -> int:
        return int((repo or self.repo).git("rev-list", "--count", BRANCH))

    def conditions(self) -> dict[str, tuple[bool, str]]:
        return {each.type: (each.status, each.reason) for each in self.records.conditions.get("main")}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def records(tmp_path: Path, clock: FakeClock) -> Iterator[Records]:
    opened = Records.open(tmp_path / "state" / "records.sqlite", clock_now=clock.now)
    yield opened
    opened.close()


@pytest.fixture
def world(tmp_path: Path, records: Records, clock: FakeClock) -> World:
    return World(tmp_path, records, clock)


def value(text: str) -> Any:
    return parse_documents(text.encode()).documents[0].value


def test_pending_files_are_written_at_once(world: World) -> None:
    world.shop()
    writer = world.writer()
    assert writer.next_due() == 0
    assert writer.flush()
    assert set(world.files()) == {
        *("README.md", "reconciler.yaml", "_org/gvc/shop.yaml"),
        *("shop/workload/w0.yaml", "shop/workload/w1.yaml"),
    }
    assert world.records.status_queue.count("main") == 0
    assert writer.next_due() is None
    assert not writer.flush(force=True)
    assert world.conditions()["StatusPushed"] == (True, "Pushed")
    assert "[skip ci]" in world.repo.git("log", "-1", "--format=%s", BRANCH)


def test_later_changes_are_written_once_per_interval(world: World) -> None:
    world.shop()
    writer = world.writer()
    writer.flush()
    world.pass_time(10)
    world.seen("workload/shop/w0", Health.LOADING)
    assert not writer.flush()
    assert writer.next_due() == 20
    world.seen("workload/shop/w1", Health.LOADING)
    world.pass_time(20)
    assert writer.flush()
    assert world.commits() == 2
    assert value(world.files()["reconciler.yaml"])["notReady"] == 2


def test_the_first_change_after_a_quiet_interval_is_written_at_once(world: World) -> None:
    world.shop()
    writer = world.writer()
    writer.flush()
    world.pass_time(31)
    world.seen("workload/shop/w0", Health.LOADING)
    assert writer.next_due() == 0
    assert writer.flush()
    assert world.commits() == 2


def test_force_does_not_wait_for_the_interval(world: World) -> None:
    world.shop()
    writer = world.writer()
    writer.flush()
    world.seen("workload/shop/w0", Health.LOADING)
    assert writer.flush(force=True)


def test_a_restarted_writer_finds_nothing_to_do_and_commits_nothing(world: World) -> None:
    world.shop()
    world.writer().flush()
    world.writer().flush()
    assert world.commits() == 1


def test_a_gvc_is_as_healthy_as_its_members(world: World) -> None:
    world.shop()
    writer = world.writer()
    writer.flush()
    world.seen("workload/shop/w1", Health.UNHEALTHY)
    writer.flush(force=True)
    assert value(world.files()["_org/gvc/shop.yaml"])["health"] == "Unhealthy"
    world.seen("workload/shop/w1", Health.HEALTHY)
    restarted = world.writer()
    restarted.flush()
    assert value(world.files()["_org/gvc/shop.yaml"])["health"] == "Recorded"
    assert value(world.files()["reconciler.yaml"])["health"] == "Healthy"


def test_a_deleted_resource_loses_its_file(world: World) -> None:
    world.shop()
    writer = world.writer()
    writer.flush()
    world.records.desired.replace("main", ["workload/shop/w1"], [])
    world.records.applied.remove(
        [("workload/shop/w1", each.location) for each in world.records.applied.get("workload/shop/w1")]
    )
    world.touch("workload/shop/w1")
    writer.flush(force=True)
    assert "shop/workload/w1.yaml" not in world.files()


def test_the_readme_lists_what_is_not_ready_and_why(world: World) -> None:
    world.shop(3)
    world.records.failures.put(failure(Key.parse("workload/shop/w0"), "here"))
    world.seen("workload/shop/w2", Health.UNHEALTHY)
    writer = world.writer()
    writer.flush()
    rows = [line for line in world.files()["README.md"].splitlines() if line.startswith("| [")]
    assert rows == [
        "| [workload/shop/w0](shop/workload/w0.yaml) | ProgramNotFound | at here: no such image |",
        "| [workload/shop/w2](shop/workload/w2.yaml) | Unhealthy | not healthy at here |",
    ]


def test_links_of_the_readme_lead_into_the_buckets_of_a_wide_directory(world: World) -> None:
    world.shop(workloads=MOST_ENTRIES + 1)
    world.seen("workload/shop/w7", Health.UNHEALTHY)
    world.writer().flush()
    paths = world.repo.git("ls-tree", "-r", "--name-only", BRANCH).splitlines()
    shown = world.repo.git("show", f"{BRANCH}:README.md")
    [link] = re.findall(r"\[workload/shop/w7\]\((.*?)\)", shown)
    assert link in paths
    assert re.fullmatch("shop/workload/_[0-9a-f]{2}/w7.yaml", link)


def test_a_restart_knows_what_was_not_ready_before(world: World) -> None:
    world.shop(4)
    world.records.failures.put(failure(Key.parse("workload/shop/w0"), "here"))
    world.seen("workload/shop/w1", Health.LOADING)
    world.records.desired.replace("main", [], [entry("workload/shop/w2", "d2"), entry("secret/new")])
    world.touch("workload/shop/w2", "secret/new")
    world.writer().flush()
    before = world.files()
    world.touch("workload/shop/w3")
    world.writer().flush()
    assert world.files() == before
    assert value(before["reconciler.yaml"])["notReady"] == 4
    assert value(before["_org/gvc/shop.yaml"])["health"] == "Loading"


def test_a_waiting_step_has_a_reason_until_it_is_done(world: World) -> None:
    world.shop()
    world.records.desired.replace("main", ["workload/shop/w0", "workload/shop/w1"], [])
    outcome = Outcome(StepId(Key.parse("workload/shop/w0"), "here"), Result.WAITING, "ApprovalRequired", "approve abc")
    retained = RetainedResource(Key.parse("workload/shop/w1"), "the tag platform/protected keeps it")
    changed = waiting.save_wait_reasons(world.records, [outcome], [retained])
    assert [str(key) for key in changed] == ["workload/shop/w0", "workload/shop/w1"]
    assert waiting.save_wait_reasons(world.records, [outcome], [retained]) == []
    world.writer().flush()
    ready = {name: value(text)["conditions"][0] for name, text in world.files().items() if "workload" in name}
    assert ready["shop/workload/w0.yaml"]["reason"] == "ApprovalRequired"
    assert (ready["shop/workload/w1.yaml"]["reason"], ready["shop/workload/w1.yaml"]["status"]) == ("Retained", True)
    assert value(world.files()["reconciler.yaml"])["notReady"] == 1

    done = msgspec.structs.replace(outcome, result=Result.APPLIED)
    waiting.save_wait_reasons(world.records, [done], [])
    assert waiting.wait_reason(world.records, outcome.id.key) is None


def test_an_unbound_location_is_reported(world: World) -> None:
    world.shop(1)
    world.writer().flush()
    placed = value(world.files()["shop/workload/w0.yaml"])["conditions"][1]
    assert (placed["type"], placed["status"], placed["reason"]) == ("Placed", False, "LocationNotBound")
    assert placed["message"] == "this host binds no location away"


def test_a_branch_that_was_taken_away_is_written_whole_again(world: World) -> None:
    world.shop()
    writer = world.writer()
    writer.flush()
    before = world.files()
    world.repo.git("branch", "-D", BRANCH)
    world.touch("workload/shop/w0")
    writer.flush(force=True)
    assert world.files() == before
    assert world.commits() == 1


def test_a_new_revision_is_published_although_no_resource_changed(world: World) -> None:
    world.shop()
    writer = world.writer()
    writer.flush()
    world.records.sources.put(SourceRow("main", "main", "c" * 40, "t" * 40, "s"))
    world.records.conditions.set("main", make_condition(ConditionType.READY, True, Reason.APPLIED))
    assert writer.next_due() == 30
    writer.flush(force=True)
    found = value(world.files()["reconciler.yaml"])
    assert found["revision"] == "main@sha1:" + "c" * 40
    assert [each["type"] for each in found["conditions"]] == ["Ready"]


def test_two_runs_to_the_same_state_write_the_same_tree(tmp_path: Path, records: Records) -> None:
    one, other = (World(tmp_path / name, records, FakeClock()) for name in ("a", "b"))
    keys = one.shop(30)
    one.writer().flush()
    other.pass_time(12_345)
    writer = other.writer()
    for key in reversed(keys):
        other.touch(key)
        writer.flush(force=True)
    trees = [world.repo.git("rev-parse", f"{BRANCH}^{{tree}}") for world in (one, other)]
    assert trees[0] == trees[1]


def test_a_branch_that_cannot_be_written_is_a_condition_and_tried_again(world: World) -> None:
    world.shop()
    lock = world.repo.path / "refs/heads/reconciler"
    lock.write_text("in the way")
    writer = world.writer()
    assert not writer.flush()
    assert world.conditions()["StatusPushed"] == (False, "SourceFailed")
    assert world.records.status_queue.count("main") == 3
    assert writer.next_due() == 30
    world.pass_time(700)
    assert not writer.flush()
    assert world.conditions()["StatusStale"] == (True, "SourceFailed")
    lock.unlink()
    assert writer.flush(force=True)
    assert world.conditions()["StatusStale"] == (False, "Pushed")
    assert world.conditions()["StatusPushed"] == (True, "Pushed")


def test_many_files_that_git_did_not_take_are_brought_again_with_what_follows_from_them(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = world.shop(FEW + 50)
    writer = world.writer()
    assert writer.flush()
    for key in keys[1:]:
        world.seen(key, Health.UNHEALTHY)
    broken = programs(tmp_path, "#!/bin/sh\nhead -c 4000 >/dev/null\necho fatal: out of order >&2\nexit 128\n")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{broken}:{os.environ['PATH']}")
        assert not writer.flush(force=True)
    assert world.conditions()["StatusPushed"] == (False, "SourceFailed")
    assert writer.flush(force=True)
    names = ("_org/gvc/shop.yaml", "shop/workload/w0.yaml", f"shop/workload/w{FEW + 49}.yaml")
    reported = [value(world.repo.git("show", f"{BRANCH}:{name}"))["health"] for name in names]
    assert reported == ["Unhealthy"] * 3
    assert value(world.repo.git("show", f"{BRANCH}:reconciler.yaml"))["notReady"] == len(keys) - 1


@pytest.mark.parametrize("git", ["#!/bin/sh\nexit 128\n", ""], ids=["a git that fails", "no git"])
def test_files_of_a_former_writer_are_corrected_after_a_failed_try(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git: str
) -> None:
    keys = world.shop(FEW + 50)
    for key in keys[1:]:
        world.seen(key, Health.UNHEALTHY)
    assert world.writer().flush()
    for key in keys[1:]:
        world.seen(key, Health.HEALTHY)
    restarted = world.writer()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(programs(tmp_path, git)))
        assert not restarted.flush(force=True)
    assert restarted.flush(force=True)
    assert value(world.repo.git("show", f"{BRANCH}:_org/gvc/shop.yaml"))["health"] == "Recorded"


def test_records_that_fail_while_files_are_made_leave_nothing_half_made_in_the_repository(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.shop(FEW + 2 * TOGETHER)
    read, times = FactsReader.expect, count()

    def failing(gathering: FactsReader, keys: Iterable[Key]) -> None:
        if next(times) == 1:
            raise RecordsError("the disk is full")
        read(gathering, keys)

    writer = world.writer()
    with monkeypatch.context() as patch:
        patch.setattr(FactsReader, "expect", failing)
        with pytest.raises(RecordsError, match="the disk is full"):
            writer.flush()
    left = [path.name for path in world.repo.path.rglob("*") if "tmp" in path.name or "crash" in path.name]
    assert left == []
    assert world.repo.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert writer.flush(force=True)


def programs(tmp_path: Path, git: str) -> Path:
    """A directory with the program ``git``, or (``""``) without any."""
    found = tmp_path / "bin"
    found.mkdir()
    if git:
        (found / "git").write_text(git)
        (found / "git").chmod(0o755)
    return found


def test_the_branch_that_is_followed_is_never_written(tmp_path: Path, records: Records) -> None:
    world = World(tmp_path, records, FakeClock(), status=StatusSettings(branch="main"))
    world.shop()
    assert not world.writer().flush()
    assert "main" in world.records.conditions.get("main")[0].message
    assert world.repo.git("rev-list", "--count", "main") == "1"


def test_the_status_of_a_read_only_source_stays_in_the_state_directory(tmp_path: Path, records: Records) -> None:
    world = World(tmp_path, records, FakeClock(), read_only=True)
    world.shop()
    assert world.writer().flush()
    assert "shop/workload/w0.yaml" in world.files(GitRepo(tmp_path / "state/status/main.git"))
    assert world.repo.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


Remote = Callable[[str], Source]


@pytest.fixture
def remote(world: World) -> Remote:
    """The world's repository as a remote, each time through another mirror."""

    def opened(name: str) -> Source:
        address = RepositoryAddress(str(world.repo.path), "file")
        return Source(world.source_settings, None, Mirror(world.source_settings, address, world.path / name))

    return opened


def test_status_is_pushed_to_a_remote(world: World, remote: Remote) -> None:
    world.shop()
    writer = world.writer(remote("mirror.git"))
    assert writer.flush()
    assert len(world.files()) == 5
    world.seen("workload/shop/w0", Health.LOADING)
    assert writer.flush(force=True)
    assert world.commits() == 2


def test_without_push_the_status_of_a_remote_stays_here(tmp_path: Path, records: Records) -> None:
    world = World(tmp_path, records, FakeClock(), status=StatusSettings(push=False))
    world.shop()
    address = RepositoryAddress(str(world.repo.path), "file")
    source = Source(world.source_settings, None, Mirror(world.source_settings, address, tmp_path / "mirror.git"))
    assert world.writer(source).flush()
    assert len(world.files(GitRepo(tmp_path / "state/status/main.git"))) == 5
    assert world.repo.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_a_push_that_lost_the_race_is_built_upon_the_winner(world: World, remote: Remote) -> None:
    world.shop()
    writer = world.writer(remote("mirror.git"))
    writer.flush()
    for number in range(3):
        world.repo.commit({"NOTES.md": f"by hand {number}"}, branch=BRANCH)
        world.seen("workload/shop/w0", Health.LOADING if number % 2 == 0 else Health.HEALTHY)
        assert writer.flush(force=True)
    assert world.files()["NOTES.md"] == "by hand 2"
    assert value(world.files()["shop/workload/w0.yaml"])["health"] == "Loading"
    assert world.commits() == 7


def test_two_hosts_on_one_remote_branch_both_land(world: World, remote: Remote) -> None:
    world.shop()
    one, other = world.writer(remote("one.git")), world.writer(remote("other.git"))
    one.flush()
    world.touch("workload/shop/w0")
    other.flush()
    for writer, health in ((one, Health.LOADING), (other, Health.HEALTHY), (one, Health.UNHEALTHY)):
        world.seen("workload/shop/w0", health)
        assert writer.flush(force=True)
    assert value(world.files()["shop/workload/w0.yaml"])["health"] == "Unhealthy"


def test_a_remote_that_is_away_is_a_condition_and_nothing_is_lost(world: World, remote: Remote) -> None:
    world.shop()
    writer = world.writer(remote("mirror.git"))
    writer.flush()
    away = world.repo.path.rename(world.path / "away.git")
    world.seen("workload/shop/w0", Health.LOADING)
    assert not writer.flush(force=True)
    assert world.conditions()["StatusPushed"][0] is False
    world.seen("workload/shop/w1", Health.UNHEALTHY)
    assert not writer.flush(force=True)
    away.rename(world.repo.path)
    assert writer.flush(force=True)
    assert value(world.files()["shop/workload/w0.yaml"])["health"] == "Loading"
    assert value(world.files()["shop/workload/w1.yaml"])["health"] == "Unhealthy"
    assert world.conditions()["StatusPushed"] == (True, "Pushed")


def test_files_not_pushed_before_a_crash_are_pushed_after_it(world: World, remote: Remote) -> None:
    world.shop()
    writer = world.writer(remote("mirror.git"))
    writer.flush()
    away = world.repo.path.rename(world.path / "away.git")
    world.seen("workload/shop/w0", Health.LOADING)
    writer.flush(force=True)
    away.rename(world.repo.path)
    world.repo.commit({"NOTES.md": "meanwhile"}, branch=BRANCH)
    assert world.writer(remote("mirror.git")).flush()
    assert value(world.files()["shop/workload/w0.yaml"])["health"] == "Loading"
    assert world.files()["NOTES.md"] == "meanwhile"


def test_a_branch_taken_away_from_the_remote_is_written_whole_again(world: World, remote: Remote) -> None:
    world.shop()
    writer = world.writer(remote("mirror.git"))
    writer.flush()
    before = world.files()
    world.repo.git("branch", "-D", BRANCH)
    world.touch("workload/shop/w0")
    world.records.conditions.set("main", make_condition(ConditionType.READY, True, Reason.APPLIED))
    assert not writer.flush(force=True)
    assert writer.flush(force=True)
    assert set(world.files()) == set(before)


def test_a_crash_between_commit_and_record_writes_the_same_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.shop()
    writer = world.writer()
    monkeypatch.setattr(world.records.status_queue, "clear", _crash)
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    monkeypatch.undo()
    assert world.records.status_queue.count("main") == 3
    assert world.writer().flush()
    assert world.commits() == 1
    assert world.records.status_queue.count("main") == 0


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_only_resources_of_the_source_are_published(world: World) -> None:
    world.shop()
    world.records.desired.replace("other", [], [entry("secret/theirs", source="other")])
    world.records.applied.put(record("secret/theirs", source="other"))
    world.writer().flush()
    assert not any("secret" in name for name in world.files())
