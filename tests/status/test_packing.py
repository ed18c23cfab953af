"""Objects of the status branch are packed: in a repository of others only ours, in our own one all."""

from __future__ import annotations

import gc
import os
import re
import shutil
from pathlib import Path

import pytest

from reconciler.errors import SourceError
from reconciler.settings import SourceSettings
from reconciler.source.source import open_source
from reconciler.status.branch import branch as branches
from reconciler.status.branch.branch import StatusBranch, prepare_bare
from tests.support.git import GitRepo

BRANCH = "reconciler/status"


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    return GitRepo.create(tmp_path / "r.git", {"a.yaml": "kind: gvc\n"})


def write(branch: StatusBranch, first: int, count: int) -> None:
    for number in range(first, first + count):
        branch.commit({"shop/workload/api.yaml": b"%d\n" % number}, "Status", 1_700_000_000 + number)


def loose(branch: StatusBranch) -> set[str]:
    """Ids of the objects that have a file each."""
    found = (branch.gitdir / "objects").glob("[0-9a-f][0-9a-f]/*")
    return {f"{path.parent.name}{path.name}" for path in found}


def packs(branch: StatusBranch) -> list[Path]:
    return sorted((branch.gitdir / "objects" / "pack").glob("*.pack"))


def test_only_objects_of_the_branch_are_packed_in_a_repository_of_others(repo: GitRepo) -> None:
    branch = StatusBranch(repo.path, BRANCH)
    theirs = loose(branch)
    write(branch, 0, 3)
    branch.pack()
    assert loose(branch) == theirs
    assert branch.read("shop/workload/api.yaml") == b"2\n"
    write(branch, 3, 2)
    branch.pack()
    assert loose(branch) == theirs
    assert len(packs(branch)) == 1
    assert repo.git("rev-list", "--count", BRANCH) == "5"
    repo.git("fsck", "--strict")


def test_small_packs_become_few(repo: GitRepo) -> None:
    branch = StatusBranch(repo.path, BRANCH)
    counts = []
    for number in range(20):
        write(branch, 2 * number, 2)
        branch.pack()
        counts.append(len(packs(branch)))
    assert max(counts) <= 4
    assert repo.git("rev-list", "--count", BRANCH) == "40"
    repo.git("fsck", "--strict")


@pytest.mark.parametrize("theirs", ["gc", "keep"])
def test_packs_that_the_owner_collects_or_keeps_are_not_merged(repo: GitRepo, theirs: str) -> None:
    branch = StatusBranch(repo.path, BRANCH)
    write(branch, 0, 2)
    branch.pack()
    (path,) = packs(branch)
    if theirs == "gc":
        repo.git("gc", "--quiet", "--prune=now")
    else:
        path.with_suffix(".keep").touch()
    write(branch, 2, 2)
    branch.pack()
    assert len(packs(branch)) == 2
    assert path.exists() == (theirs == "keep")
    repo.git("fsck", "--strict")


def test_no_collected_pack_stays_open(repo: GitRepo) -> None:
    branch = StatusBranch(repo.path, BRANCH)
    source = open_source(SourceSettings("main", url=str(repo.path)), repo.path.parent / "state")
    write(branch, 0, 2)
    repo.git("gc", "--quiet", "--prune=now")
    assert branch.read("shop/workload/api.yaml") == b"1\n"
    source.revision()
    before = mapped(repo)
    write(branch, 2, 1)
    repo.git("gc", "--quiet", "--prune=now")
    write(branch, 3, 1)
    source.revision()
    gc.collect()
    assert before
    assert before & mapped(repo) == set()


def mapped(repo: GitRepo) -> set[str]:
    """The packs and indexes of a repository that are in the memory of this process, by file name."""
    return set(re.findall(rf"{re.escape(str(repo.path))}/objects/pack/(\S+)", Path("/proc/self/maps").read_text()))


def test_the_end_of_a_former_history_is_packed_too(repo: GitRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "HISTORY", 4)
    branch = StatusBranch(repo.path, BRANCH)
    theirs = loose(branch)
    write(branch, 0, 2)
    branch.pack()
    write(branch, 2, 3)
    branch.pack()
    assert repo.git("rev-list", "--count", BRANCH) == "1"
    assert loose(branch) == theirs
    write(branch, 5, 8)  # more than one history
    branch.pack()
    assert loose(branch) == theirs
    repo.git("fsck", "--strict")


def test_packing_is_due_after_a_number_of_commits(repo: GitRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "EVERY", 5)
    write(StatusBranch(repo.path, BRANCH), 0, 3)
    branch = StatusBranch(repo.path, BRANCH)  # of the next process
    write(branch, 3, 1)
    branch.commit({"shop/workload/api.yaml": b"3\n"}, "Status", 1)  # changes nothing
    assert not branch.needs_packing()
    write(branch, 4, 1)
    assert branch.needs_packing()
    branch.pack()
    assert not branch.needs_packing()
    assert len(packs(branch)) == 1
    write(branch, 5, 4)
    assert not branch.needs_packing()


def test_a_commit_that_others_collected_meanwhile_does_not_stop_packing(repo: GitRepo) -> None:
    branch = StatusBranch(repo.path, BRANCH)
    write(branch, 0, 2)
    branch.pack()
    repo.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    repo.git("gc", "--quiet", "--prune=now")
    branch = StatusBranch(repo.path, BRANCH)
    write(branch, 2, 1)
    branch.pack()
    gone = branch.tip()
    repo.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    repo.git("gc", "--quiet", "--prune=now")
    write(branch, 3, 1)
    with pytest.raises(SourceError, match="pack-objects"):
        branch.pack()
    branch.pack()
    assert gone != branch.tip()
    repo.git("fsck", "--strict")


def test_our_own_repository_loses_the_former_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "HISTORY", 4)
    branch = StatusBranch(prepare_bare(tmp_path / "status.git"), BRANCH, own=True)
    write(branch, 0, 1)
    first = branch.tip()
    write(branch, 1, 5)
    for path in branch.gitdir.rglob("objects/??/*"):
        os.utime(path, (0, 0))  # an hour is over
    branch.pack()
    repo = GitRepo(branch.gitdir)
    repo.git("fsck", "--strict")
    assert branch.read("shop/workload/api.yaml") == b"5\n"
    assert first not in repo.git("cat-file", "--batch-all-objects", "--batch-check")
    write(branch, 6, 1)
    assert repo.git("rev-list", "--count", BRANCH) == "3"


def test_a_repository_that_cannot_be_packed_is_reported_and_stays_whole(repo: GitRepo) -> None:
    branch = StatusBranch(repo.path, BRANCH)
    write(branch, 0, 2)
    before = loose(branch)
    shutil.rmtree(repo.path / "objects" / "pack")
    (repo.path / "objects" / "pack").write_text("in the way")
    with pytest.raises(SourceError, match="git pack-objects in"):
        branch.pack()
    assert loose(branch) == before
    assert branch.read("shop/workload/api.yaml") == b"1\n"
