"""No program that a source's own repository names is ever run, and what is written there is right all the same."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pygit2
import pytest

from reconciler.errors import SourceError
from reconciler.settings import SourceSettings
from reconciler.source.source import Source, open_source
from reconciler.status.branch.branch import StatusBranch
from reconciler.status.branch.target import open_target
from reconciler.status.branch.trees import FEW
from tests.support.git import GitRepo, git
from tests.support.programs import only_root

BRANCH = "reconciler/status"
OTHER = 12345
HOOKS = (
    *("reference-transaction", "update", "post-update", "pre-receive", "post-receive", "pre-push", "pre-commit"),
    *("post-commit", "post-index-change", "fsmonitor-watchman", "pre-auto-gc", "proc-receive", "post-checkout"),
)
CONFIGURED = (
    *("core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.editor", "core.pager", "core.askPass"),
    *("core.alternateRefsCommand", "gpg.program", "gpg.ssh.program", "gpg.ssh.defaultKeyCommand"),
    *("credential.helper", "diff.external", "sequence.editor", "uploadpack.packObjectsHook"),
    *("gc.recentObjectsHook", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process"),
    *("diff.evil.textconv", "merge.evil.driver", "trailer.evil.command", "remote.evil.receivepack"),
)

needs_root = only_root("only root can give a repository to another user")


class PlantedRepository:
    """A repository with a branch ``main``, and a program that leaves a mark when anything runs it."""

    def __init__(self, path: Path) -> None:
        self.place = path
        self.repo = GitRepo.create(path / "manifests.git", {"shop/gvc.yaml": "kind: gvc\n"})
        self.mark = path / "ran"
        self.program = path / "program"
        self.program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{self.mark}'\nexit 0\n")
        self.program.chmod(0o755)
        path.chmod(0o777)

    def config(self, name: str, value: object) -> None:
        """Set one value in the repository's own configuration."""
        self.repo.git("config", "--add", name, str(value))

    def write(self, name: str, content: str, mode: int = 0o644) -> None:
        """Write one file of the repository's directory."""
        path = self.repo.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(mode)

    def give_away(self) -> None:
        """Let everything belong to another user."""
        for path in [self.repo.path, *self.repo.path.rglob("*")]:
            os.chown(path, OTHER, OTHER)

    def source(self) -> Source:
        """The repository as a source."""
        return open_source(SourceSettings("main", str(self.repo.path), branch="main"), self.place / "state")

    def status(self) -> dict[str, str]:
        """Files of the status branch, as a Git without this configuration sees them."""
        git = pygit2.Repository(str(self.repo.path))
        tree = git.revparse_single(f"refs/heads/{BRANCH}").peel(pygit2.Tree)
        return {entry.name: entry.data.decode() for entry in tree if isinstance(entry, pygit2.Blob)}  # type: ignore[misc]


@pytest.fixture
def planted() -> Iterator[PlantedRepository]:
    """A hostile repository in a directory that every user can enter."""
    pygit2.option(pygit2.enums.Option.SET_OWNER_VALIDATION, 0)
    place = Path(tempfile.mkdtemp(prefix="hostile-", dir="/tmp"))
    yield PlantedRepository(place)
    shutil.rmtree(place)


def plant_promisor(planted: PlantedRepository) -> None:
    """A status branch with a missing subtree, which a partial clone would fetch."""
    for name, value in (("promisor", "true"), ("url", planted.repo.path), ("uploadpack", f"{planted.program} --")):
        planted.config(f"remote.evil.{name}", value)
    planted.config("extensions.partialClone", "evil")
    tree = f"040000 tree {'ab' * 20}\tshop\n".encode()
    id_ = git(planted.repo.path, "mktree", "--missing", stdin=tree)
    planted.repo.git("update-ref", f"refs/heads/{BRANCH}", planted.repo.git("commit-tree", "-m", "x", id_))


def plant_hooks(planted: PlantedRepository) -> None:
    """Every hook, in its usual place."""
    for name in HOOKS:
        planted.write(f"hooks/{name}", planted.program.read_text(), 0o755)


def plant_hooks_path(planted: PlantedRepository) -> None:
    """Every hook, where the configuration puts it."""
    for name in HOOKS:
        planted.write(f"elsewhere/{name}", planted.program.read_text(), 0o755)
    planted.config("core.hooksPath", planted.repo.path / "elsewhere")


def plant_programs(planted: PlantedRepository) -> None:
    """Every setting of Git that names a program."""
    for name in CONFIGURED:
        planted.config(name, planted.program)
    planted.config("commit.gpgSign", "true")
    planted.config("core.fsmonitorHookVersion", "2")
    planted.write("info/attributes", "* filter=evil diff=evil merge=evil\n")


def plant_include(planted: PlantedRepository) -> None:
    """The same from a file that the configuration includes."""
    extra = planted.place / "extra"
    extra.write_text(f"[core]\n\tfsmonitor = {planted.program}\n\thooksPath = {planted.repo.path}/elsewhere\n")
    extra.chmod(0o644)
    plant_hooks_path(planted)
    planted.config("include.path", extra)


def plant_urls(planted: PlantedRepository) -> None:
    """Every url stands for a program."""
    planted.config("protocol.ext.allow", "always")
    planted.config("protocol.allow", "always")
    planted.config(f"url.ext::{planted.program} .insteadOf", "/")
    planted.config("remote.origin.url", f"ext::{planted.program} x")


def plant_alternates(planted: PlantedRepository) -> None:
    """Objects of another repository, whose own configuration and hooks are hostile too."""
    other = GitRepo.create(planted.place / "other.git", {"x.yaml": "x\n"})
    other.git("config", "core.fsmonitor", str(planted.program))
    planted.write("objects/info/alternates", f"{other.path}/objects\n")
    planted.config("core.alternateRefsCommand", planted.program)


def plant_grafts(planted: PlantedRepository) -> None:
    """Parents of the status branch that are not there."""
    tip = StatusBranch(planted.repo.path, BRANCH).commit({"old.yaml": b"1\n"}, "Old", 1)
    planted.write("info/grafts", f"{tip} {'1' * 40}\n")


def plant_shallow(planted: PlantedRepository) -> None:
    """A status branch that claims to have no parents."""
    tip = StatusBranch(planted.repo.path, BRANCH).commit({"old.yaml": b"1\n"}, "Old", 1)
    planted.write("shallow", f"{tip}\n")


PLANTS = (
    *(plant_promisor, plant_hooks, plant_hooks_path, plant_programs, plant_include, plant_urls),
    *(plant_alternates, plant_grafts, plant_shallow),
)


def write_status(planted: PlantedRepository) -> None:
    """What a run does with a source: read its newest revision, then commit few and many files of status."""
    source = planted.source()
    source.refresh()
    tree = source.revision().tree
    assert [change.path for change in source.repository.changes("", tree)] == ["shop/gvc.yaml"]
    target = open_target(source, planted.place / "state")
    target.write({f"{number}.yaml": b"1\n" for number in range(FEW + 1)}, "Many", 1_700_000_000)
    target.write({"few.yaml": b"2\n"}, "Few", 1_700_000_001)


def check_status(planted: PlantedRepository) -> None:
    """The files are there, whole and readable."""
    files = planted.status()
    assert files["few.yaml"] == "2\n"
    assert len(files) == FEW + 2 + ("old.yaml" in files)
    assert not (planted.repo.path / "refs/reconciler").exists(), "nothing of an import is left"


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("owner", ["same", pytest.param("other", marks=needs_root)])
def test_nothing_that_a_repository_names_is_run(
    planted: PlantedRepository, plant: Callable[[PlantedRepository], None], owner: str
) -> None:
    plant(planted)
    if owner == "other":
        planted.give_away()
    if plant is plant_promisor:
        # Git never reads the missing directory, since nothing below it changes.
        StatusBranch(planted.repo.path, BRANCH).commit({"few.yaml": b"1\n"}, "Few", 1)
        many = {f"shop/{number}.yaml": b"1\n" for number in range(FEW + 1)}
        with pytest.raises(SourceError):
            StatusBranch(planted.repo.path, BRANCH).commit(many, "Many", 1_700_000_000)
    else:
        write_status(planted)
        check_status(planted)
    assert not planted.mark.exists(), planted.mark.read_text()
    if owner == "other":
        strange = [path for path in planted.repo.path.rglob("*") if path.lstat().st_uid != OTHER]
        assert strange == [], "its owner can still work with it"
    assert not [*planted.repo.path.glob("fast_import_crash_*")]


@needs_root
@pytest.mark.parametrize("name", ["logs/refs/heads", "refs/heads/reconciler", "objects/pack"])
def test_root_follows_no_symlink_in_a_repository(planted: PlantedRepository, name: str) -> None:
    outside = planted.place / "outside"
    outside.mkdir(mode=0o755)
    planted.config("core.logAllRefUpdates", "always")
    link = planted.repo.path / name
    shutil.rmtree(link, ignore_errors=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    planted.give_away()
    os.chown(outside, 0, 0)
    with pytest.raises(SourceError, match=r"(?i)permission denied|cannot be written|unable to create|failed"):
        write_status(planted)
    assert [*outside.rglob("*")] == []


@needs_root
def test_a_repository_that_its_owner_cannot_write_is_not_written_by_root(planted: PlantedRepository) -> None:
    planted.give_away()
    os.chown(planted.repo.path / "objects", 0, 0)
    os.chown(planted.repo.path / "refs/heads", 0, 0)
    with pytest.raises(SourceError):
        write_status(planted)
    assert os.geteuid() == 0
    probe = planted.place / "probe"
    probe.write_text("x")
    assert probe.stat().st_uid == 0, "this thread is root again"
