"""How a repository is opened: what libgit2 may hold in memory."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from random import randbytes

import pygit2
import pytest

from reconciler.settings import SourceSettings
from reconciler.source.libgit import CACHE_BYTES, MAPPED_BYTES, open_git
from reconciler.source.source import open_source
from reconciler.status.branch.branch import StatusBranch
from tests.support.git import GitRepo
from tests.support.heap import heap


def test_the_memory_for_objects_does_not_grow_with_their_number(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "repo.git", {"a.yaml": "a"})
    git = open_git(repo.path)
    blob = git.create_blob(b"a")
    # Repositories that other tests of this process have open have a part, too.
    largest = others = pygit2.settings.cached_memory[0]
    for number in range(200):
        tree = git.TreeBuilder()
        for index in range(400):
            tree.insert(f"{number:04}-{index:04}-{'x' * 40}.yaml", blob, pygit2.enums.FileMode.BLOB)
        assert len(git[tree.write()]) == 400
        largest = max(largest, pygit2.settings.cached_memory[0])
    assert 0 < largest < others + 1.5 * CACHE_BYTES


@pytest.mark.slow
def test_only_a_part_of_a_large_pack_is_in_memory(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "repo.git", {f"{number}.yaml": randbytes(1 << 20) for number in range(12)})
    repo.git("repack", "-a", "-d", "-q")
    git = open_git(repo.path)
    mapped = []
    for entry in git.revparse_single("main^{tree}"):
        assert len(git[entry.id].data) == 1 << 20
        mapped.append(mapped_packs())
    assert 0 < max(mapped) <= MAPPED_BYTES + (1 << 20)


def mapped_packs() -> int:
    """The bytes of packs that this process maps."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    bounds = [line.split()[0].split("-") for line in maps if line.endswith(".pack")]
    return sum(int(end, 16) - int(start, 16) for start, end in bounds)


def left_behind(work: Callable[[int], object], times: int) -> int:
    """The number of objects that ``work`` leaves in memory when it is repeated."""
    for number in range(5):
        work(number)
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(times):
        work(number)
    gc.collect()
    return sys.getallocatedblocks() - before


def test_a_poll_leaves_nothing_in_memory(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "repo.git", {"a.yaml": "kind: gvc\n"})
    source = open_source(SourceSettings(name="main", url=str(repo.path), branch="main"), tmp_path / "state")
    assert left_behind(lambda _: source.revision(), 200) < 100


def test_a_commit_of_the_status_leaves_nothing_in_memory(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "repo.git", {"a.yaml": "kind: gvc\n"})
    branch = StatusBranch(repo.path, "reconciler/status")

    def commit(number: int) -> None:
        file = f"shop/workload/{'web' if number % 2 else 'api'}.yaml"
        branch.read("-".join(("no", "such", "file")))
        branch.commit({file: b"%d" % number, f"{file}.old": None}, "Status", 1_700_000_000 + number)

    assert left_behind(commit, 200) < 100


def test_memory_levels_off_after_a_few_hundred_commits_of_the_status(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "repo.git", {"a.yaml": "kind: gvc\n"})
    branch = StatusBranch(repo.path, "reconciler/status")
    branch.commit({f"shop/workload/w{number}.yaml": b"" for number in range(20)}, "Status", 1_700_000_000)

    def commit(number: int) -> None:
        branch.commit({f"shop/workload/w{number % 20}.yaml": b"%d" % number}, "Status", 1_700_000_001 + number)

    gc.collect()  # what earlier tests cached would be freed in between
    for number in range(400):
        commit(number)
    before = heap().in_use
    for number in range(400, 520):
        commit(number)
    assert heap().in_use - before < 150 * 1024
