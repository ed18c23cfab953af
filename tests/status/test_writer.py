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


class PublisherHarness:
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
def harness(tmp_path: Path, records: Records, clock: FakeClock) -> PublisherHarness:
    return PublisherHarness(tmp_path, records, clock)


def value(text: str) -> Any:
    return parse_documents(text.encode()).documents[0].value


def test_pending_files_are_written_at_once(harness: PublisherHarness) -> None:
    harness.shop()
    writer = harness.writer()
    assert writer.next_due() == 0
    assert writer.flush()
    assert set(harness.files()) == {
        *("README.md", "reconciler.yaml", "_org/gvc/shop.yaml"),
        *("shop/workload/w0.yaml", "shop/workload/w1.yaml"),
    }
    assert harness.records.status_queue.count("main") == 0
    assert writer.next_due() is None
    assert not writer.flush(force=True)
    assert harness.conditions()["StatusPushed"] == (True, "Pushed")
    assert "[skip ci]" in harness.repo.git("log", "-1", "--format=%s", BRANCH)


def test_later_changes_are_written_once_per_interval(harness: PublisherHarness) -> None:
    harness.shop()
    writer = harness.writer()
    writer.flush()
    harness.pass_time(10)
    harness.seen("workload/shop/w0", Health.LOADING)
    assert not writer.flush()
    assert writer.next_due() == 20
    harness.seen("workload/shop/w1", Health.LOADING)
    harness.pass_time(20)
    assert writer.flush()
    assert harness.commits() == 2
    assert value(harness.files()["reconciler.yaml"])["notReady"] == 2


def test_the_first_change_after_a_quiet_interval_is_written_at_once(harness: PublisherHarness) -> None:
    harness.shop()
    writer = harness.writer()
    writer.flush()
    harness.pass_time(31)
    harness.seen("workload/shop/w0", Health.LOADING)
    assert writer.next_due() == 0
    assert writer.flush()
    assert harness.commits() == 2


def test_force_does_not_wait_for_the_interval(harness: PublisherHarness) -> None:
    harness.shop()
    writer = harness.writer()
    writer.flush()
    harness.seen("workload/shop/w0", Health.LOADING)
    assert writer.flush(force=True)


def test_a_restarted_writer_finds_nothing_to_do_and_commits_nothing(harness: PublisherHarness) -> None:
    harness.shop()
    harness.writer().flush()
    harness.writer().flush()
    assert harness.commits() == 1


def test_a_gvc_is_as_healthy_as_its_members(harness: PublisherHarness) -> None:
    harness.shop()
    writer = harness.writer()
    writer.flush()
    harness.seen("workload/shop/w1", Health.UNHEALTHY)
    writer.flush(force=True)
    assert value(harness.files()["_org/gvc/shop.yaml"])["health"] == "Unhealthy"
    harness.seen("workload/shop/w1", Health.HEALTHY)
    restarted = harness.writer()
    restarted.flush()
    assert value(harness.files()["_org/gvc/shop.yaml"])["health"] == "Recorded"
    assert value(harness.files()["reconciler.yaml"])["health"] == "Healthy"


def test_a_deleted_resource_loses_its_file(harness: PublisherHarness) -> None:
    harness.shop()
    writer = harness.writer()
    writer.flush()
    harness.records.desired.replace("main", ["workload/shop/w1"], [])
    harness.records.applied.remove(
        [("workload/shop/w1", each.location) for each in harness.records.applied.get("workload/shop/w1")]
    )
    harness.touch("workload/shop/w1")
    writer.flush(force=True)
    assert "shop/workload/w1.yaml" not in harness.files()


def test_the_readme_lists_what_is_not_ready_and_why(harness: PublisherHarness) -> None:
    harness.shop(3)
    harness.records.failures.put(failure(Key.parse("workload/shop/w0"), "here"))
    harness.seen("workload/shop/w2", Health.UNHEALTHY)
    writer = harness.writer()
    writer.flush()
    rows = [line for line in harness.files()["README.md"].splitlines() if line.startswith("| [")]
    assert rows[:2] == [
        "| [workload/shop/w0](shop/workload/w0.yaml) | ProgramNotFound | at here: no such image |",
        "| [workload/shop/w2](shop/workload/w2.yaml) | Unhealthy | not healthy at here |",
    ]
    assert [row.split("|")[1:3] for row in rows[2:]] == [
        [f" [workload/shop/w{number}](shop/workload/w{number}.yaml) ", f" {health} "]
        for number, health in enumerate(("Healthy", "Healthy", "Unhealthy"))
    ]


def test_the_readme_names_the_commit(harness: PublisherHarness) -> None:
    harness.shop(1)
    harness.records.sources.put(SourceRow("main", "main", "c" * 40, "t" * 40, "s", "Ann Lee", "Let it grow", 60))
    harness.writer().flush()
    assert "\n**Let it grow** by Ann Lee, 1970-01-01 00:01:00 UTC\n" in harness.files()["README.md"]


def test_links_of_the_readme_lead_into_the_buckets_of_a_wide_directory(harness: PublisherHarness) -> None:
    harness.shop(workloads=MOST_ENTRIES + 1)
    harness.seen("workload/shop/w7", Health.UNHEALTHY)
    harness.writer().flush()
    paths = harness.repo.git("ls-tree", "-r", "--name-only", BRANCH).splitlines()
    shown = harness.repo.git("show", f"{BRANCH}:README.md")
    links = re.findall(r"\[workload/shop/w7\]\((.*?)\)", shown)
    assert {*links} <= {*paths}
    link = links[0]
    assert re.fullmatch("shop/workload/_[0-9a-f]{2}/w7.yaml", link)


def test_a_restart_knows_what_was_not_ready_before(harness: PublisherHarness) -> None:
    harness.shop(4)
    harness.records.failures.put(failure(Key.parse("workload/shop/w0"), "here"))
    harness.seen("workload/shop/w1", Health.LOADING)
    harness.records.desired.replace("main", [], [entry("workload/shop/w2", "d2"), entry("secret/new")])
    harness.touch("workload/shop/w2", "secret/new")
    harness.writer().flush()
    before = harness.files()
    harness.touch("workload/shop/w3")
    harness.writer().flush()
    assert harness.files() == before
    assert value(before["reconciler.yaml"])["notReady"] == 4
    assert value(before["_org/gvc/shop.yaml"])["health"] == "Loading"


def test_a_waiting_step_has_a_reason_until_it_is_done(harness: PublisherHarness) -> None:
    harness.shop()
    harness.records.desired.replace("main", ["workload/shop/w0", "workload/shop/w1"], [])
    outcome = Outcome(StepId(Key.parse("workload/shop/w0"), "here"), Result.WAITING, "ApprovalRequired", "approve abc")
    retained = RetainedResource(Key.parse("workload/shop/w1"), "the tag platform/protected keeps it")
    changed = waiting.save_wait_reasons(harness.records, [outcome], [retained])
    assert [str(key) for key in changed] == ["workload/shop/w0", "workload/shop/w1"]
    assert waiting.save_wait_reasons(harness.records, [outcome], [retained]) == []
    harness.writer().flush()
    ready = {name: value(text)["conditions"][0] for name, text in harness.files().items() if "workload" in name}
    assert ready["shop/workload/w0.yaml"]["reason"] == "ApprovalRequired"
    assert (ready["shop/workload/w1.yaml"]["reason"], ready["shop/workload/w1.yaml"]["status"]) == ("Retained", True)
    assert value(harness.files()["reconciler.yaml"])["notReady"] == 1

    done = msgspec.structs.replace(outcome, result=Result.APPLIED)
    waiting.save_wait_reasons(harness.records, [done], [])
    assert waiting.wait_reason(harness.records, outcome.id.key) is None


def test_an_unbound_location_is_reported(harness: PublisherHarness) -> None:
    harness.shop(1)
    harness.writer().flush()
    placed = value(harness.files()["shop/workload/w0.yaml"])["conditions"][1]
    assert (placed["type"], placed["status"], placed["reason"]) == ("Placed", False, "LocationNotBound")
    assert placed["message"] == "this host binds no location away"


def test_a_branch_that_was_taken_away_is_written_whole_again(harness: PublisherHarness) -> None:
    harness.shop()
    writer = harness.writer()
    writer.flush()
    before = harness.files()
    harness.repo.git("branch", "-D", BRANCH)
    harness.touch("workload/shop/w0")
    writer.flush(force=True)
    assert harness.files() == before
    assert harness.commits() == 1


def test_a_new_revision_is_published_although_no_resource_changed(harness: PublisherHarness) -> None:
    harness.shop()
    writer = harness.writer()
    writer.flush()
    harness.records.sources.put(SourceRow("main", "main", "c" * 40, "t" * 40, "s"))
    harness.records.conditions.set("main", make_condition(ConditionType.READY, True, Reason.APPLIED))
    assert writer.next_due() == 30
    writer.flush(force=True)
    found = value(harness.files()["reconciler.yaml"])
    assert found["revision"] == "main@sha1:" + "c" * 40
    assert [each["type"] for each in found["conditions"]] == ["Ready"]


def test_two_runs_to_the_same_state_write_the_same_tree(tmp_path: Path, records: Records) -> None:
    one, other = (PublisherHarness(tmp_path / name, records, FakeClock()) for name in ("a", "b"))
    other.path = one.path
    keys = one.shop(30)
    one.writer().flush()
    other.pass_time(12_345)
    writer = other.writer()
    for key in reversed(keys):
        other.touch(key)
        writer.flush(force=True)
    trees = [harness.repo.git("rev-parse", f"{BRANCH}^{{tree}}") for harness in (one, other)]
    assert trees[0] == trees[1]


def test_a_branch_that_cannot_be_written_is_a_condition_and_tried_again(harness: PublisherHarness) -> None:
    harness.shop()
    lock = harness.repo.path / "refs/heads/reconciler"
    lock.write_text("in the way")
    writer = harness.writer()
    assert not writer.flush()
    assert harness.conditions()["StatusPushed"] == (False, "SourceFailed")
    assert harness.records.status_queue.count("main") == 3
    assert writer.next_due() == 30
    harness.pass_time(700)
    assert not writer.flush()
    assert harness.conditions()["StatusStale"] == (True, "SourceFailed")
    lock.unlink()
    assert writer.flush(force=True)
    assert harness.conditions()["StatusStale"] == (False, "Pushed")
    assert harness.conditions()["StatusPushed"] == (True, "Pushed")


def test_a_failure_is_over_when_what_failed_to_be_written_is_undone(harness: PublisherHarness) -> None:
    harness.shop()
    writer = harness.writer()
    writer.flush()
    away = harness.repo.path.rename(harness.path / "away.git")
    harness.records.conditions.set("main", make_condition(ConditionType.READY, False, Reason.SOURCE_NOT_FOUND))
    assert not writer.flush(force=True)
    assert harness.conditions()["StatusPushed"] == (False, "SourceFailed")
    away.rename(harness.repo.path)
    harness.records.conditions.drop("main", ConditionType.READY)
    assert writer.next_due() == 30
    harness.pass_time(30)
    assert writer.flush()
    assert harness.conditions()["StatusPushed"] == (True, "Pushed")
    assert writer.next_due() is None


def test_many_files_that_git_did_not_take_are_brought_again_with_what_follows_from_them(
    harness: PublisherHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = harness.shop(FEW + 50)
    writer = harness.writer()
    assert writer.flush()
    for key in keys[1:]:
        harness.seen(key, Health.UNHEALTHY)
    broken = programs(tmp_path, "#!/bin/sh\nhead -c 4000 >/dev/null\necho fatal: out of order >&2\nexit 128\n")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{broken}:{os.environ['PATH']}")
        assert not writer.flush(force=True)
    assert harness.conditions()["StatusPushed"] == (False, "SourceFailed")
    assert writer.flush(force=True)
    names = ("_org/gvc/shop.yaml", "shop/workload/w0.yaml", f"shop/workload/w{FEW + 49}.yaml")
    reported = [value(harness.repo.git("show", f"{BRANCH}:{name}"))["health"] for name in names]
    assert reported == ["Unhealthy"] * 3
    assert value(harness.repo.git("show", f"{BRANCH}:reconciler.yaml"))["notReady"] == len(keys) - 1


@pytest.mark.parametrize("git", ["#!/bin/sh\nexit 128\n", ""], ids=["a git that fails", "no git"])
def test_files_of_a_former_writer_are_corrected_after_a_failed_try(
    harness: PublisherHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git: str
) -> None:
    keys = harness.shop(FEW + 50)
    for key in keys[1:]:
        harness.seen(key, Health.UNHEALTHY)
    assert harness.writer().flush()
    for key in keys[1:]:
        harness.seen(key, Health.HEALTHY)
    restarted = harness.writer()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(programs(tmp_path, git)))
        assert not restarted.flush(force=True)
    assert restarted.flush(force=True)
    assert value(harness.repo.git("show", f"{BRANCH}:_org/gvc/shop.yaml"))["health"] == "Recorded"


def test_records_that_fail_while_files_are_made_leave_nothing_half_made_in_the_repository(
    harness: PublisherHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.shop(FEW + 2 * TOGETHER)
    read, times = FactsReader.expect, count()

    def failing(gathering: FactsReader, keys: Iterable[Key]) -> None:
        if next(times) == 1:
            raise RecordsError("the disk is full")
        read(gathering, keys)

    writer = harness.writer()
    with monkeypatch.context() as patch:
        patch.setattr(FactsReader, "expect", failing)
        with pytest.raises(RecordsError, match="the disk is full"):
            writer.flush()
    left = [path.name for path in harness.repo.path.rglob("*") if "tmp" in path.name or "crash" in path.name]
    assert left == []
    assert harness.repo.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert writer.flush(force=True)


def programs(tmp_path: Path, git: str) -> Path:
    """A directory with the program ``git``, or (``""``) without any."""
    path = tmp_path / "bin"
    path.mkdir()
    if git:
        (path / "git").write_text(git)
        (path / "git").chmod(0o755)
    return path


def test_the_branch_that_is_followed_is_never_written(tmp_path: Path, records: Records) -> None:
    harness = PublisherHarness(tmp_path, records, FakeClock(), status=StatusSettings(branch="main"))
    harness.shop()
    assert not harness.writer().flush()
    assert "main" in harness.records.conditions.get("main")[0].message
    assert harness.repo.git("rev-list", "--count", "main") == "1"


def test_the_status_of_a_read_only_source_stays_in_the_state_directory(tmp_path: Path, records: Records) -> None:
    harness = PublisherHarness(tmp_path, records, FakeClock(), read_only=True)
    harness.shop()
    assert harness.writer().flush()
    assert "shop/workload/w0.yaml" in harness.files(GitRepo(tmp_path / "state/status/main.git"))
    assert harness.repo.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


Remote = Callable[[str], Source]


@pytest.fixture
def remote(harness: PublisherHarness) -> Remote:
    """The harness's repository as a remote, each time through another mirror."""

    def opened(name: str) -> Source:
        address = RepositoryAddress(str(harness.repo.path), "file")
        return Source(harness.source_settings, None, Mirror(harness.source_settings, address, harness.path / name))

    return opened


def test_status_is_pushed_to_a_remote(harness: PublisherHarness, remote: Remote) -> None:
    harness.shop()
    writer = harness.writer(remote("mirror.git"))
    assert writer.flush()
    assert len(harness.files()) == 5
    harness.seen("workload/shop/w0", Health.LOADING)
    assert writer.flush(force=True)
    assert harness.commits() == 2


def test_without_push_the_status_of_a_remote_stays_here(tmp_path: Path, records: Records) -> None:
    harness = PublisherHarness(tmp_path, records, FakeClock(), status=StatusSettings(push=False))
    harness.shop()
    address = RepositoryAddress(str(harness.repo.path), "file")
    source = Source(harness.source_settings, None, Mirror(harness.source_settings, address, tmp_path / "mirror.git"))
    assert harness.writer(source).flush()
    assert len(harness.files(GitRepo(tmp_path / "state/status/main.git"))) == 5
    assert harness.repo.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_a_push_that_lost_the_race_is_built_upon_the_winner(harness: PublisherHarness, remote: Remote) -> None:
    harness.shop()
    writer = harness.writer(remote("mirror.git"))
    writer.flush()
    for number in range(3):
        harness.repo.commit({"NOTES.md": f"by hand {number}"}, branch=BRANCH)
        harness.seen("workload/shop/w0", Health.LOADING if number % 2 == 0 else Health.HEALTHY)
        assert writer.flush(force=True)
    assert harness.files()["NOTES.md"] == "by hand 2"
    assert value(harness.files()["shop/workload/w0.yaml"])["health"] == "Loading"
    assert harness.commits() == 7


def test_two_mirrors_of_one_daemon_both_land(harness: PublisherHarness, remote: Remote) -> None:
    harness.shop()
    one, other = harness.writer(remote("one.git")), harness.writer(remote("other.git"))
    one.flush()
    harness.touch("workload/shop/w0")
    other.flush()
    for writer, health in ((one, Health.LOADING), (other, Health.HEALTHY), (one, Health.UNHEALTHY)):
        harness.seen("workload/shop/w0", health)
        assert writer.flush(force=True)
    assert value(harness.files()["shop/workload/w0.yaml"])["health"] == "Unhealthy"


def test_a_remote_that_is_away_is_a_condition_and_nothing_is_lost(harness: PublisherHarness, remote: Remote) -> None:
    harness.shop()
    writer = harness.writer(remote("mirror.git"))
    writer.flush()
    away = harness.repo.path.rename(harness.path / "away.git")
    harness.seen("workload/shop/w0", Health.LOADING)
    assert not writer.flush(force=True)
    assert harness.conditions()["StatusPushed"][0] is False
    harness.seen("workload/shop/w1", Health.UNHEALTHY)
    assert not writer.flush(force=True)
    away.rename(harness.repo.path)
    assert writer.flush(force=True)
    assert value(harness.files()["shop/workload/w0.yaml"])["health"] == "Loading"
    assert value(harness.files()["shop/workload/w1.yaml"])["health"] == "Unhealthy"
    assert harness.conditions()["StatusPushed"] == (True, "Pushed")


def test_files_not_pushed_before_a_crash_are_pushed_after_it(harness: PublisherHarness, remote: Remote) -> None:
    harness.shop()
    writer = harness.writer(remote("mirror.git"))
    writer.flush()
    away = harness.repo.path.rename(harness.path / "away.git")
    harness.seen("workload/shop/w0", Health.LOADING)
    writer.flush(force=True)
    away.rename(harness.repo.path)
    harness.repo.commit({"NOTES.md": "meanwhile"}, branch=BRANCH)
    assert harness.writer(remote("mirror.git")).flush()
    assert value(harness.files()["shop/workload/w0.yaml"])["health"] == "Loading"
    assert harness.files()["NOTES.md"] == "meanwhile"


def test_a_branch_taken_away_from_the_remote_is_written_whole_again(harness: PublisherHarness, remote: Remote) -> None:
    harness.shop()
    writer = harness.writer(remote("mirror.git"))
    writer.flush()
    before = harness.files()
    harness.repo.git("branch", "-D", BRANCH)
    harness.touch("workload/shop/w0")
    harness.records.conditions.set("main", make_condition(ConditionType.READY, True, Reason.APPLIED))
    assert not writer.flush(force=True)
    assert writer.flush(force=True)
    assert set(harness.files()) == set(before)


def test_a_crash_between_commit_and_record_writes_the_same_again(
    harness: PublisherHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.shop()
    writer = harness.writer()
    monkeypatch.setattr(harness.records.status_queue, "clear", _crash)
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    monkeypatch.undo()
    assert harness.records.status_queue.count("main") == 3
    assert harness.writer().flush()
    assert harness.commits() == 1
    assert harness.records.status_queue.count("main") == 0


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_only_resources_of_the_source_are_published(harness: PublisherHarness) -> None:
    harness.shop()
    harness.records.desired.replace("other", [], [entry("secret/theirs", source="other")])
    harness.records.applied.put(record("secret/theirs", source="other"))
    harness.writer().flush()
    assert not any("secret" in name for name in harness.files())
