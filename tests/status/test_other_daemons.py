"""Two daemons on one status branch: nobody's status is overwritten, and a daemon that is gone can be replaced."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.documents.reader import parse_documents
from reconciler.errors import SourceError
from reconciler.model.record import Health
from reconciler.records.store import Records
from reconciler.settings import LocationSettings, Settings, SourceSettings, StatusSettings
from reconciler.source.mirror import Mirror
from reconciler.source.source import Source, open_source
from reconciler.source.url import RepositoryAddress
from reconciler.status.branch.writer import IDENTITY_FILE, Writer, format_writer, identify_writer, read_writer
from reconciler.status.publisher import StatusPublisher
from tests.status.samples import entry, record
from tests.support.clock import FakeClock
from tests.support.git import GitRepo

BRANCH = "reconciler/status"
BODY = b'{"spec": {"staticPlacement": {"locationLinks": ["/org/acme/location/here"]}}}'


class Host:
    """A daemon with a state directory and records of its own, on a repository that others write to as well."""

    def __init__(self, path: Path, repo: GitRepo, *, remote: bool = False, branch: str = BRANCH) -> None:
        self.state = path / "state"
        self.repo = repo
        self.branch = branch
        self.clock = FakeClock()
        self.records = Records.open(self.state / "records.sqlite", clock_now=self.clock.now)
        source = SourceSettings("main", str(repo.path), branch="main", status=StatusSettings(branch=branch))
        mirror = Mirror(source, RepositoryAddress(str(repo.path), "file"), path / "mirror.git")
        self.source = Source(source, None, mirror) if remote else open_source(source, self.state)
        places = {"here": LocationSettings(engine="recorded")}
        self.settings = Settings("acme", (source,), self.state, locations=places)
        self.writer = StatusPublisher(self.records, self.source, self.settings, self.clock)

    def apply(self, *names: str) -> None:
        """Record a GVC and workloads."""
        keys = ["gvc/shop", *(f"workload/shop/{name}" for name in names)]
        self.records.desired.replace("main", [], [entry(key) for key in keys])
        for key in keys:
            self.records.applied.put(record(key, "" if key == "gvc/shop" else "here", body=BODY))
        self.records.status_queue.add_many("main", keys)

    def see(self, name: str, health: Health) -> None:
        """Record the health of a workload."""
        self.records.applied.update_seen(f"workload/shop/{name}", "here", health, b"{}")
        self.records.status_queue.add_many("main", [f"workload/shop/{name}"])

    def files(self) -> dict[str, str]:
        """The files of the branch."""
        names = self.repo.git("ls-tree", "-r", "--name-only", self.branch).splitlines()
        return {name: self.repo.git("show", f"{self.branch}:{name}") for name in names}

    def condition(self) -> tuple[str, str]:
        """Reason and message of StatusPushed."""
        return next(
            (each.reason, each.message) for each in self.records.conditions.get("main") if "Pushed" in each.type
        )


@pytest.fixture(params=["local", "remote"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two daemons on one repository: on its disk, and as a remote that each fetches."""
    repo = GitRepo.create(tmp_path / "r.git", {"gvc.yaml": "kind: gvc\n"})
    made = tuple(Host(tmp_path / name, repo, remote=request.param == "remote") for name in ("one", "two"))
    yield made[0], made[1]
    for host in made:
        host.records.close()


def test_a_second_daemon_writes_nothing_and_names_the_first(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.apply("api", "web")
    assert one.writer.flush()
    before = one.files()
    written_by = parse_documents(before["reconciler.yaml"].encode()).documents[0].value["daemon"]  # type: ignore[index, call-overload]
    assert written_by["state"] == str(one.state)  # type: ignore[index]
    two.apply("api")
    assert not two.writer.flush()
    reason, message = two.condition()
    assert reason == "StatusBranchTaken"
    assert identify_writer(one.state).id in message
    assert str(one.state) in message
    assert "status.branch" in message
    assert message.endswith("reconciler apply --take-status-branch")
    assert one.files() == before
    one.see("web", Health.UNHEALTHY)
    assert one.writer.flush(force=True)
    assert not two.writer.flush(force=True)
    assert "Unhealthy" in one.files()["shop/workload/web.yaml"]
    assert one.condition()[0] == "Pushed"


def test_a_branch_that_was_taken_over_is_that_of_the_new_daemon_alone(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.apply("api", "old")
    assert one.writer.flush()
    one.repo.commit({"NOTES.md": "by hand\n", "shop/workload/notes.txt": "mine\n"}, branch=BRANCH)
    two.apply("api", "web")
    assert not two.writer.flush()
    two.writer.take_over()
    assert two.writer.flush(force=True)
    assert set(two.files()) == {
        *("NOTES.md", "README.md", "reconciler.yaml", "_org/gvc/shop.yaml"),
        *("shop/workload/api.yaml", "shop/workload/notes.txt", "shop/workload/web.yaml"),
    }
    assert two.condition()[0] == "Pushed"
    after = two.files()
    for health in (Health.UNHEALTHY, Health.HEALTHY):
        one.see("api", health)
        assert not one.writer.flush(force=True)
    assert one.condition()[0] == "StatusBranchTaken"
    assert identify_writer(two.state).id in one.condition()[1]
    assert two.files() == after
    two.see("web", Health.LOADING)
    assert two.writer.flush(force=True)


def test_a_branch_that_people_delete_is_written_by_the_next_daemon(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.apply("api")
    assert one.writer.flush()
    two.apply("web")
    assert not two.writer.flush()
    one.repo.git("branch", "-D", BRANCH)
    assert two.writer.flush(force=True)
    assert "shop/workload/web.yaml" in two.files()
    one.see("api", Health.UNHEALTHY)
    assert not one.writer.flush(force=True)


def test_lost_records_and_a_lost_state_directory_keep_the_branch(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "r.git", {"gvc.yaml": "kind: gvc\n"})
    for lost in ("", "records.sqlite", "."):
        if lost:
            shutil.rmtree(tmp_path / "state") if lost == "." else (tmp_path / "state" / lost).unlink()
        host = Host(tmp_path, repo)
        host.apply(f"after-{lost.strip('.') or 'all'}")
        assert host.writer.flush(), lost
        host.records.close()


def test_a_branch_without_a_writer_of_an_earlier_version_is_taken(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "r.git", {"gvc.yaml": "kind: gvc\n"})
    host = Host(tmp_path / "one", repo)
    host.apply("api")
    assert host.writer.flush()
    lines = host.files()["reconciler.yaml"].splitlines(keepends=True)
    old = "".join(line for line in lines if not line.startswith(("daemon:", "  id:", "  host:", "  state:")))
    repo.commit({"reconciler.yaml": old}, branch=BRANCH)
    other = Host(tmp_path / "two", repo)
    other.apply("web")
    assert other.writer.flush()
    assert str(other.state) in other.files()["reconciler.yaml"]
    for each in (host, other):
        each.records.close()


def test_a_copied_state_directory_is_another_daemon_and_a_moved_one_is_not(tmp_path: Path) -> None:
    first = identify_writer(tmp_path / "state")
    assert identify_writer(tmp_path / "state") == first
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    assert identify_writer(tmp_path / "copy").id != first.id
    (tmp_path / "state").rename(tmp_path / "moved")
    assert identify_writer(tmp_path / "moved").id == first.id
    assert identify_writer(tmp_path / "moved").state == str(tmp_path / "moved")
    assert identify_writer(tmp_path / "copy").id not in (first.id, "")


def test_a_state_directory_of_another_machine_is_another_daemon(tmp_path: Path) -> None:
    first = identify_writer(tmp_path)
    stored = json.loads((tmp_path / IDENTITY_FILE).read_text())
    (tmp_path / IDENTITY_FILE).write_text(json.dumps({**stored, "id": "0" * 12, "machine": "f" * 12}))
    if stored["machine"]:
        assert identify_writer(tmp_path).id == first.id
    else:
        assert identify_writer(tmp_path).id == "0" * 12


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"id": 3}', b"\xff"])
def test_a_damaged_identity_is_derived_again(tmp_path: Path, content: bytes) -> None:
    first = identify_writer(tmp_path)
    (tmp_path / IDENTITY_FILE).write_bytes(content)
    assert identify_writer(tmp_path) == first
    assert (tmp_path / IDENTITY_FILE).stat().st_mode & 0o777 == 0o600


def test_an_identity_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / IDENTITY_FILE).mkdir()
    with pytest.raises(SourceError, match=IDENTITY_FILE):
        identify_writer(tmp_path)


@pytest.mark.parametrize("text", ["ops1", 'a "b" \\ c', "a\nid: b", "\x1b[31mred", "#x: {y}"])
def test_a_writer_is_read_as_it_was_written(text: str) -> None:
    file = "\n".join(["source: main", *format_writer(Writer("0123456789ab", text, text)), "health: Healthy", ""])
    seen = read_writer(file.encode())
    assert seen is not None
    assert seen.id == "0123456789ab"
    assert "\n" not in seen.host
    assert "\x1b" not in str(seen)
    if text.isprintable():
        assert seen == Writer("0123456789ab", text, text)
