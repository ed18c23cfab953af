"""The status branch on real repositories."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.errors import SourceError
from reconciler.status.branch import branch as branch_module
from reconciler.status.branch.branch import StatusBranch
from reconciler.status.branch.target import StatusTarget
from reconciler.status.branch.trees import FEW, File, LazyFiles
from reconciler.status.branch.writer import Writer
from tests.support.examples import examples
from tests.support.git import GitRepo

BRANCH = "reconciler/status"
WRITER = Writer("3f2a91c0aa12", "ops1", "/var/lib/reconciler")


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    return GitRepo.create(tmp_path / "r.git", {"a.yaml": "kind: gvc\n"})


def names(repo: GitRepo) -> set[str]:
    return {name for name in repo.git("ls-tree", "-r", "-z", "--name-only", BRANCH).split("\0") if name}


def files(repo: GitRepo) -> dict[str, str]:
    return {name: repo.git("show", f"{BRANCH}:{name}") for name in names(repo)}


def commit(repo: GitRepo, changes: dict[str, bytes | None], message: str = "Status", at: int = 1_700_000_000) -> str:
    return StatusBranch(repo.path, BRANCH).commit(changes, message, at)


def test_a_missing_branch_starts_with_an_orphan_commit(repo: GitRepo) -> None:
    tip = commit(repo, {"shop/workload/api.yaml": b"x\n"}, "Status of main at 1234567")
    assert files(repo) == {"shop/workload/api.yaml": "x"}
    assert repo.git("rev-list", "--count", BRANCH) == "1"
    assert repo.git("log", "-1", "--format=%H|%s|%an <%ae>|%ct", BRANCH) == (
        f"{tip}|Status of main at 1234567 [skip ci]|reconciler <reconciler@localhost>|1700000000"
    )


def test_unchanged_parts_and_files_of_others_stay(repo: GitRepo) -> None:
    commit(repo, {"a/b.yaml": b"1\n", "a/c.yaml": b"1\n", "d.yaml": b"1\n"})
    repo.commit({"NOTES.md": "by hand\n", "a/also.txt": "mine\n"}, branch=BRANCH)
    commit(repo, {"a/b.yaml": b"2\n", "d.yaml": None})
    assert files(repo) == {"NOTES.md": "by hand", "a/also.txt": "mine", "a/b.yaml": "2", "a/c.yaml": "1"}
    assert repo.git("rev-list", "--count", BRANCH) == "3"


def test_nothing_is_committed_where_nothing_changes(repo: GitRepo) -> None:
    first = commit(repo, {"a.yaml": b"1\n"}, at=1)
    assert commit(repo, {"a.yaml": b"1\n", "gone.yaml": None}, at=2) == first


def test_an_empty_directory_goes_with_its_last_file(repo: GitRepo) -> None:
    commit(repo, {"a/b/c.yaml": b"1\n", "x.yaml": b"1\n"})
    commit(repo, {"a/b/c.yaml": None})
    assert files(repo) == {"x.yaml": "1"}
    commit(repo, {"x.yaml": None})
    assert files(repo) == {}


@pytest.mark.parametrize(
    ("count", "start"),
    [(300, {}), (2_000, {"old/a.yaml": b"1\n", "old/b.yaml": b"1\n", "file": b"f\n", "dir/x": b"1\n"})],
)
def test_many_files_through_a_pack_give_the_same_tree_as_few_at_a_time(
    repo: GitRepo, tmp_path: Path, count: int, start: dict[str, bytes]
) -> None:
    twin = repo.clone_bare(tmp_path / "twin.git")
    many: dict[str, bytes | None] = {f"g{n % 50}/workload/w{n}.yaml": b"n: %d\n" % n for n in range(count)}
    many |= {"old/a.yaml": None, "missing": None, "old": None, "file/now/a-directory": b"1\n", 'odd "name"\\': b"1\n"}
    many |= {"dir": b"now a file\n"}
    paths = list(many)
    if start:
        commit(repo, dict(start))
        commit(twin, dict(start))
    commit(repo, many)
    for at in range(0, len(paths), FEW):
        commit(twin, {path: many[path] for path in paths[at : at + FEW]})
    assert repo.git("rev-parse", f"{BRANCH}^{{tree}}") == twin.git("rev-parse", f"{BRANCH}^{{tree}}")
    assert repo.git("for-each-ref", "--format=%(refname)") == f"refs/heads/main\nrefs/heads/{BRANCH}"
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


NAMES = st.sampled_from(["a", "b", "c", "a.b"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CHANGES = st.dictionaries(PATHS, st.none() | st.binary(max_size=2), max_size=6).filter(
    lambda changes: not any(f"{path}/" in f"{other}" for path in changes for other in changes if other.startswith(path))
)


def model(files: dict[str, bytes], changes: dict[str, bytes | None]) -> dict[str, bytes]:
    """What a change does to files, as a dict."""
    for path, content in changes.items():
        if content is None:
            files = {name: text for name, text in files.items() if name != path}
            continue
        parents = {path.rsplit("/", n)[0] for n in range(1, path.count("/") + 1)}
        files = {n: t for n, t in files.items() if n not in parents and not n.startswith(f"{path}/")}
        files[path] = content
    return files


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(CHANGES, max_size=5), st.booleans())
def test_changes_one_after_the_other_give_what_a_dict_gives(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[dict[str, bytes | None]], packed: bool
) -> None:
    repo = GitRepo.create(tmp_path_factory.mktemp("model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconciler.status.branch.trees.FEW", -1 if packed else FEW)
        expected: dict[str, bytes] = {}
        for changes in rounds:
            expected = model(expected, changes)
            commit(repo, changes)
            status = StatusBranch(repo.path, BRANCH)
            assert (names(repo) if status.tip() else set()) == set(expected)
            assert all(status.read(path) == content for path, content in expected.items())


def test_two_writers_both_land(repo: GitRepo) -> None:
    def write(name: str) -> None:
        status = StatusBranch(repo.path, BRANCH)
        for n in range(20):
            status.commit({f"{name}/{n}.yaml": b"1\n"}, f"{name} {n}", n)

    writers = [threading.Thread(target=write, args=(name,)) for name in ("one", "two", "three")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert len(names(repo)) == 60
    assert repo.git("rev-list", "--count", BRANCH) == "60"


def test_files_that_are_made_on_the_way_land_though_another_writer_was_faster(repo: GitRepo) -> None:
    passes: list[str] = []

    def files() -> Iterator[File]:
        passes.append("render")
        for n in range(FEW + 50):
            if n == FEW and len(passes) == 1:
                commit(repo, {"other.yaml": b"1\n"})
            yield f"g/{n}.yaml", b"1\n"

    StatusBranch(repo.path, BRANCH).commit(LazyFiles(files), "many", 1)
    assert names(repo) == {*(f"g/{n}.yaml" for n in range(FEW + 50)), "other.yaml"}
    assert len(passes) == 2
    assert repo.git("rev-list", "--count", BRANCH) == "2"


def test_a_writer_with_git_itself_is_built_upon(repo: GitRepo) -> None:
    stop = threading.Event()

    def push() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            tip = repo.git("rev-parse", f"refs/heads/{BRANCH}")
            new = repo.git("commit-tree", f"{tip}^{{tree}}", "-p", tip, "-m", f"by hand {count}")
            try:
                repo.git("update-ref", f"refs/heads/{BRANCH}", new, tip)
            except RuntimeError:
                continue

    commit(repo, {"first.yaml": b"1\n"})
    writer = threading.Thread(target=push)
    writer.start()
    for n in range(30):
        commit(repo, {f"{n}.yaml": b"1\n"})
    stop.set()
    writer.join(60)
    assert len(names(repo)) == 31


@pytest.mark.parametrize("tip", ["", "b.yaml"])
def test_a_lock_that_a_killed_process_left_is_removed_and_another_one_stays(
    repo: GitRepo, monkeypatch: pytest.MonkeyPatch, tip: str
) -> None:
    if tip:
        commit(repo, {tip: b"1\n"})
    lock = repo.path / f"refs/heads/{BRANCH}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    monkeypatch.setattr(branch_module, "_TRIES", 2)
    with pytest.raises(SourceError, match="locked by others"):
        commit(repo, {"a.yaml": b"1\n"})
    assert lock.exists()
    made = lock.stat().st_mtime - branch_module._LOCK_LASTS
    os.utime(lock, (made, made))
    commit(repo, {"a.yaml": b"1\n"})
    assert files(repo)["a.yaml"] == "1"
    assert not lock.exists()


def test_history_is_cut_when_it_grows_long(repo: GitRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_module, "HISTORY", 5)
    for n in range(5):
        commit(repo, {f"{n}.yaml": b"1\n"})
    assert repo.git("rev-list", "--count", BRANCH) == "5"
    commit(repo, {"5.yaml": b"1\n"})
    assert repo.git("rev-list", "--count", BRANCH) == "1"
    assert len(names(repo)) == 6


def test_commits_of_others_count_towards_the_length_of_the_history(
    repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branch_module, "HISTORY", 5)
    commit(repo, {"a.yaml": b"1\n"})
    for n in range(4):
        repo.commit({"NOTES.md": str(n)}, branch=BRANCH)
    commit(repo, {"b.yaml": b"1\n"})
    assert repo.git("rev-list", "--count", BRANCH) == "1"
    assert names(repo) == {"NOTES.md", "a.yaml", "b.yaml"}


def test_packed_refs_are_read_and_moved(repo: GitRepo) -> None:
    commit(repo, {"a.yaml": b"1\n"})
    repo.git("pack-refs", "--all")
    repo.git("gc", "--quiet")
    commit(repo, {"b.yaml": b"1\n"})
    assert names(repo) == {"a.yaml", "b.yaml"}


def test_a_work_tree_s_repository_is_written_without_its_work_tree(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "work", {"a.yaml": "kind: gvc\n"}, bare=False)
    repo.git("reset", "--quiet", "--hard")
    commit(repo, {"shop/a.yaml": b"1\n"})
    commit(repo, {"shop/a.yaml": b"2\n"})
    assert repo.git("status", "--porcelain") == ""
    assert files(repo) == {"shop/a.yaml": "2"}


@pytest.mark.parametrize("linked", [False, True])
def test_a_branch_that_is_checked_out_is_refused(tmp_path: Path, linked: bool) -> None:
    repo = GitRepo.create(tmp_path / "work", {"a.yaml": "kind: gvc\n"}, bare=False)
    tip = commit(repo, {"a.yaml": b"1\n"})
    repo.git(*(("worktree", "add", "-q", str(tmp_path / "linked"), BRANCH) if linked else ("checkout", "-q", BRANCH)))
    with pytest.raises(SourceError, match="checked out"):
        commit(repo, {"a.yaml": b"2\n"})
    assert repo.git("rev-parse", BRANCH) == tip


def test_an_unborn_branch_that_a_work_tree_stands_on_is_refused(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "work", bare=False)
    repo.git("symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    with pytest.raises(SourceError, match="checked out"):
        commit(repo, {"a.yaml": b"1\n"})


def test_a_bare_repository_may_have_it_as_its_default_branch(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "r.git")
    repo.git("symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    commit(repo, {"a.yaml": b"1\n"})
    commit(repo, {"a.yaml": b"2\n"})
    assert files(repo) == {"a.yaml": "2"}


def test_a_branch_whose_name_is_taken_by_a_directory_is_an_error(repo: GitRepo) -> None:
    repo.commit({"a": "1"}, branch="reconciler")
    with pytest.raises(SourceError, match=r"'refs/heads/reconciler' exists, .*; rename that branch, or give another"):
        commit(repo, {"a.yaml": b"1\n"})


def test_a_name_that_no_branch_can_have_is_refused(repo: GitRepo) -> None:
    with pytest.raises(SourceError, match="name of a branch"):
        StatusBranch(repo.path, "a..b")


def test_a_tip_without_its_objects_is_an_error(repo: GitRepo) -> None:
    (repo.path / "refs/heads/reconciler").mkdir()
    (repo.path / "refs/heads" / BRANCH).write_text("1" * 40 + "\n")
    with pytest.raises(SourceError, match="cannot be written"):
        commit(repo, {"a.yaml": b"1\n"})


def test_a_branch_of_the_same_name_that_people_made_is_not_written(repo: GitRepo) -> None:
    repo.git("branch", "reconciler/status", "main")
    first = repo.git("rev-parse", BRANCH)
    target = StatusTarget(StatusBranch(repo.path, "reconciler/status"), WRITER)
    with pytest.raises(SourceError, match="branch reconciler/status has files, and no commit of it is one of a reconc"):
        target.write({"a.yaml": b"1\n"}, "Status", 1)
    assert repo.git("rev-parse", BRANCH) == first
    repo.git("branch", "-m", "reconciler/status", "theirs")
    target.write({"a.yaml": b"1\n"}, "Status", 1)
    assert files(repo) == {"a.yaml": "1"}
    repo.commit({"a.yaml": None, "NOTES.md": "by hand\n"}, branch=BRANCH)
    StatusTarget(StatusBranch(repo.path, "reconciler/status"), WRITER).write({"a.yaml": b"1\n"}, "Status", 1)
    assert files(repo) == {"NOTES.md": "by hand", "a.yaml": "1"}
