"""Where status files are on the branch: a wide directory is divided into buckets, on real repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.model.key import Key, Kind
from reconciler.status.branch.branch import StatusBranch
from reconciler.status.branch.layout import MOST_ENTRIES, StatusLayout, _is_bucket, _is_status, _raw_name
from tests.support.git import GitRepo
from tests.support.work import counted

BRANCH = "reconciler/status"


@pytest.fixture
def branch(tmp_path: Path) -> StatusBranch:
    return StatusBranch(GitRepo.create(tmp_path / "r.git", {"a.yaml": "kind: gvc\n"}).path, BRANCH)


def workloads(count: int, gvc: str = "shop") -> list[Key]:
    return [Key(Kind.WORKLOAD, gvc, f"w{number}") for number in range(count)]


def write(branch: StatusBranch, keys: list[Key], content: bytes | None = b"1\n") -> StatusLayout:
    """Commit the files of ``keys`` as the publisher does."""
    layout = StatusLayout(branch.tree(), keys)
    branch.commit({layout.path(key): content for key in keys}, "Status", 1_700_000_000, layout.divided)
    return layout


def write_undivided(branch: StatusBranch, keys: list[Key]) -> None:
    """Commit the files of ``keys`` as former versions did."""
    branch.commit({StatusLayout(None).path(key): str(key).encode() for key in keys}, "Status", 1_700_000_000)


def listed(branch: StatusBranch) -> set[str]:
    return set(GitRepo(branch.gitdir).git("ls-tree", "-r", "--name-only", BRANCH).splitlines())


def test_a_directory_is_divided_when_it_gets_too_many_files(branch: StatusBranch) -> None:
    keys = workloads(MOST_ENTRIES + 1)
    assert write(branch, keys[:-1]).path(keys[0]) == "shop/workload/w0.yaml"
    layout = write(branch, keys[-1:])
    assert layout.divided == ["shop/workload"]
    assert layout.path(keys[0]).startswith("shop/workload/_")
    assert listed(branch) == {layout.path(key) for key in keys}
    assert all(path.count("/") == 3 for path in listed(branch))


def test_a_directory_at_the_limit_is_written_again_without_being_divided(branch: StatusBranch) -> None:
    keys = workloads(MOST_ENTRIES)
    write(branch, keys)
    assert write(branch, keys, b"2\n").divided == []


@pytest.mark.parametrize("count", [MOST_ENTRIES - 1, MOST_ENTRIES + 1])
def test_a_commit_does_not_read_every_entry_of_a_wide_directory(branch: StatusBranch, count: int) -> None:
    write(branch, workloads(count))
    with counted() as work:
        write(branch, workloads(1), b"2\n")
    # Each search in the directory reads nine of its entries, and the first bucket ends the next search.
    assert work.calls_of(_raw_name, _is_bucket, _is_status) < 100


def test_a_branch_of_a_former_version_is_divided_by_the_first_commit_that_changes_the_directory(
    branch: StatusBranch,
) -> None:
    keys = [*workloads(MOST_ENTRIES + 50), *workloads(3, "other")]
    write_undivided(branch, keys)
    # A commit elsewhere leaves the directory, and links to it, as they are.
    assert write(branch, keys[-1:]).path(keys[0]) == "shop/workload/w0.yaml"
    assert "shop/workload/w0.yaml" in listed(branch)
    layout = write(branch, keys[:1])
    assert listed(branch) == {layout.path(key) for key in keys}
    for key in keys[1:-1]:
        assert branch.read(layout.path(key)) == str(key).encode()
    assert branch.read(layout.path(keys[0])) == b"1\n"


def test_a_file_that_a_former_version_wrote_beside_the_buckets_moves_into_one(branch: StatusBranch) -> None:
    keys = workloads(MOST_ENTRIES + 1)
    write(branch, keys)
    write_undivided(branch, keys[:2])
    layout = write(branch, keys[2:3])
    assert listed(branch) == {layout.path(key) for key in keys}
    assert branch.read(layout.path(keys[0])) == str(keys[0]).encode()


def test_files_of_others_stay_where_they_are(branch: StatusBranch) -> None:
    others: dict[str, bytes | None] = {
        "NOTES.md": b"by hand\n",
        "pages/index.html": b"by hand\n",
        "shop/workload/NOTES.md": b"by hand\n",
        "_more/workload/a.yaml": b"by hand\n",
    }
    branch.commit(others, "By hand", 1)
    keys = [Key(Kind.WORKLOAD, f"g{number}", "web") for number in range(MOST_ENTRIES + 1)]
    write(branch, [*keys, *workloads(MOST_ENTRIES + 1)])
    layout = write(branch, keys[:1])
    assert listed(branch) >= set(others) - {"shop/workload/NOTES.md"}
    assert any(path.endswith("/shop/workload/NOTES.md") for path in listed(branch))
    assert layout.path(Key(Kind.GVC, "", "g1")) == "_org/gvc/g1.yaml"


def test_many_gvcs_are_divided_too_and_each_stays_whole(branch: StatusBranch) -> None:
    keys = [
        Key(kind, f"g{number}", "web") for number in range(MOST_ENTRIES + 1) for kind in (Kind.WORKLOAD, Kind.IDENTITY)
    ]
    write_undivided(branch, keys)
    layout = write(branch, keys[:1])
    assert layout.divided == [""]
    assert listed(branch) == {layout.path(key) for key in keys}
    top = layout.path(keys[0]).removesuffix("/workload/web.yaml")
    assert layout.path(keys[1]) == f"{top}/identity/web.yaml"
    assert write(branch, keys[2:4]).path(keys[2]) == layout.path(keys[2])


def test_a_file_of_a_divided_directory_is_deleted_and_an_empty_one_starts_anew(branch: StatusBranch) -> None:
    keys = workloads(MOST_ENTRIES + 1)
    write(branch, keys)
    write(branch, keys[1:], None)
    assert listed(branch) == {StatusLayout(branch.tree()).path(keys[0])}
    write(branch, keys[:1], None)
    assert listed(branch) == set()
    assert write(branch, keys[:1]).path(keys[0]) == "shop/workload/w0.yaml"


@pytest.mark.parametrize("wide", ["files", "gvcs"])
def test_what_a_commit_writes_hardly_grows_with_the_width_of_directories(branch: StatusBranch, wide: str) -> None:
    def wrote(count: int) -> int:
        """Bytes of the trees that a commit of one file writes beside ``count`` others."""
        keys = workloads(count) if wide == "files" else [Key(Kind.WORKLOAD, f"g{n}", "web") for n in range(count)]
        write(branch, keys)
        before = branch.tip()
        write(branch, keys[:1], b"2\n")
        git = GitRepo(branch.gitdir)
        new = git.git("rev-list", "--objects", branch.tip(), f"^{before}").split("\n")
        return sum(int(git.git("cat-file", "-s", line.split(" ")[0])) for line in new)

    few = wrote(1_000)
    assert wrote(10_000) < few * 1.5
