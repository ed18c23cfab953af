"""Repositories on this machine, opened in place: what a poll sees, and what it refuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from reconciler.errors import SourceEmpty, SourceError, SourceNotFound, SourceRewritten, UsageError
from reconciler.settings import Credentials
from reconciler.source.source import check_rewrite
from tests.source.conftest import Opener
from tests.support.git import Files, GitRepo, Symlink, git
from tests.support.programs import only_root


def test_a_revision_names_the_commit_the_tree_at_the_path_and_who_made_it(repo: GitRepo, opener: Opener) -> None:
    commit = repo.commit({"shop/api.yaml": "a"}, "Add the API\n\nBecause.")
    revision = opener(repo.path, path="shop").revision()
    assert str(revision) == f"main@sha1:{commit}"
    assert (revision.source, revision.author, revision.subject) == ("main", "Ada", "Add the API")
    assert revision.tree == repo.git("rev-parse", f"{commit}:shop")


def test_a_poll_sees_commits_of_others_packed_or_not(repo: GitRepo, opener: Opener) -> None:
    source = opener(repo.path)
    first = source.revision()
    assert source.revision() is first
    second = repo.commit({"shop/api.yaml": "a"})
    assert source.revision().commit == second
    repo.git("gc", "--quiet")
    assert not (repo.path / "refs/heads/main").exists()
    assert source.revision().commit == second
    third = repo.commit({"shop/api.yaml": "b"})
    repo.git("pack-refs", "--all")
    assert source.revision().commit == third
    [change] = source.repository.changes(first.tree, source.revision().tree)
    assert source.repository.read(change.after) == b"b"


def test_a_work_tree_is_read_at_its_last_commit(tmp_path: Path, opener: Opener) -> None:
    repo = GitRepo.create(tmp_path / "work", bare=False)
    (repo.path / "gvc.yaml").write_text("committed")
    repo.git("add", ".")
    repo.git("commit", "--quiet", "-m", "Begin")
    (repo.path / "gvc.yaml").write_text("edited")
    source = opener(repo.path)
    [change] = source.repository.changes("", source.revision().tree)
    assert source.repository.read(change.after) == b"committed"


def test_an_additional_work_tree_follows_the_refs_of_the_first(tmp_path: Path, repo: GitRepo, opener: Opener) -> None:
    repo.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "second"), "main")
    source = opener(tmp_path / "second")
    commit = repo.commit({"a.yaml": "a"})
    assert source.revision().commit == commit
    assert source.repository.commondir.samefile(repo.path)


def test_a_file_url_is_a_path(repo: GitRepo, opener: Opener) -> None:
    source = opener(f"file://{repo.path}")
    assert source.local
    assert source.revision().ref == "main"


def test_tags_and_commits_are_followed_as_well_as_branches(repo: GitRepo, opener: Opener) -> None:
    commit = source_commit = repo.git("rev-parse", "main")
    repo.git("tag", "-a", "v1", "-m", "One")
    repo.commit({"later.yaml": "l"})
    assert opener(repo.path, tag="v1").revision().commit == commit
    assert opener(repo.path, commit=source_commit).revision().commit == commit
    assert opener(repo.path).repository.resolve("v1^{commit}").commit == commit


def test_a_rewritten_branch_is_reported_and_followed_only_with_leave(repo: GitRepo, opener: Opener) -> None:
    source = opener(repo.path)
    before = source.revision().commit
    ahead = repo.commit({"a.yaml": "a"})
    check_rewrite(source.repository, before, source.revision())
    repo.commit({"b.yaml": "b"}, parent="")
    with pytest.raises(SourceRewritten, match="does not contain the last commit " + ahead[:12]):
        check_rewrite(source.repository, ahead, source.revision())
    with pytest.raises(SourceRewritten):
        check_rewrite(source.repository, "f" * 40, source.revision())
    check_rewrite(source.repository, "", source.revision())
    check_rewrite(opener(repo.path, allow_rewrite=True).repository, ahead, source.revision())
    assert not source.repository.holds("f" * 40)


def test_a_deleted_branch_is_an_error_that_offers_the_nearest_name(repo: GitRepo, opener: Opener) -> None:
    source = opener(repo.path)
    source.revision()
    repo.git("branch", "-m", "main", "mainline")
    with pytest.raises(SourceNotFound, match="branch 'main' is not there; did you mean 'mainline'"):
        source.revision()
    with pytest.raises(SourceNotFound, match="tag 'v9' is not there; the repository has no tag at all"):
        opener(repo.path, tag="v9").revision()
    with pytest.raises(SourceNotFound, match="'nowhere' is not in the repository"):
        source.repository.resolve("nowhere")


def test_a_repository_that_is_gone_is_an_error_until_it_is_back(tmp_path: Path, repo: GitRepo, opener: Opener) -> None:
    source, absent = opener(repo.path), opener(tmp_path / "absent.git")
    source.revision()
    repo.path.rename(tmp_path / "absent.git")
    with pytest.raises(SourceNotFound, match="there is no such directory"):
        source.revision()
    assert absent.revision().ref == "main"
    shutil.copytree(tmp_path / "absent.git", repo.path)
    assert source.revision() == absent.revision()


@pytest.mark.parametrize("path", ["absent", "shop/gvc.yaml", "link", "../manifests.git"])
def test_a_path_that_is_no_directory_of_the_commit_is_gone(repo: GitRepo, opener: Opener, path: str) -> None:
    repo.commit({"link": Symlink("shop")})
    with pytest.raises(SourceNotFound, match="main has no directory"):
        opener(repo.path, path=path).revision()


@pytest.mark.parametrize(
    ("files", "settings"),
    [
        ({"README.md": "r"}, {}),
        ({".github/ci.yaml": "c"}, {}),
        ({"a.yaml": "a"}, {"include": ("prod/",)}),
        ({"a.yaml": "a", ".reconcilerignore": "*.yaml"}, {}),
        ({"a.yaml": Symlink("b")}, {}),
    ],
)
def test_a_path_without_manifests_is_empty_and_no_wish_to_delete_all(
    make_source: Opener, files: Files, settings: dict[str, object]
) -> None:
    with pytest.raises(SourceEmpty, match="holds no manifest"):
        make_source(files, **settings).revision()


def test_size_is_known_without_the_content_and_missing_objects_are_errors(repo: GitRepo, opener: Opener) -> None:
    repo.commit({"large.yaml": b"x" * 3_000_000})
    source = opener(repo.path)
    blob = repo.git("rev-parse", "main:large.yaml")
    assert source.repository.size(blob) == 3_000_000
    with pytest.raises(SourceError, match="missing or damaged"):
        source.repository.read("0" * 40)


def test_a_damaged_tree_is_an_error(tmp_path: Path, opener: Opener) -> None:
    repo = GitRepo.create(tmp_path / "loose.git")
    blob = git(repo.path, "hash-object", "-w", "--stdin", stdin=b"a")
    tree = git(repo.path, "mktree", stdin=f"100644 blob {blob}\ta.yaml\n".encode())
    repo.git("update-ref", "refs/heads/main", repo.git("commit-tree", "-m", "Begin", tree))
    source = opener(repo.path)
    source.repository.resolve()
    (repo.path / "objects" / tree[:2] / tree[2:]).unlink()
    with pytest.raises(SourceError, match="missing or damaged"):
        opener(repo.path).repository.compare("", tree)


@only_root("only root can give a repository to somebody else")
def test_a_repository_of_another_user_is_read(repo: GitRepo, opener: Opener) -> None:
    for path in [repo.path, *repo.path.rglob("*")]:
        os.chown(path, 12345, 12345)
    assert opener(repo.path).revision().ref == "main"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://ada:hunter2@example.com/m.git", "holds a password"),
        ("https://hunter2@example.com/m.git", "holds a user.*credentials.tokenFile"),
        ("http://hunter2:@example.com/m.git", "holds a password"),
        ("ext::sh -c x", "names a program to run"),
        ("ftp://example.com/m", "not understood"),
    ],
)
def test_urls_that_would_leak_or_run_something_are_refused(opener: Opener, url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refusal:
        opener(url)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("scheme", ["http", "git"])
def test_a_token_crosses_the_network_in_clear_only_with_leave(tmp_path: Path, opener: Opener, scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:9/m.git"
    with pytest.raises(UsageError, match=f"source main: with {scheme}:// its token.*credentials.allowInsecure"):
        opener(url, credentials=Credentials(token_file=tmp_path / "token"))
    assert not opener(url).local
    assert not opener(url, credentials=Credentials(token_file=tmp_path / "token", allow_insecure=True)).local


def test_a_repository_with_sha256_is_refused(tmp_path: Path, opener: Opener) -> None:
    git(tmp_path, "init", "--quiet", "--object-format=sha256", str(tmp_path / "wide"))
    with pytest.raises(SourceError, match=r"^source main: \S*/wide has objects that are named by SHA-256, and only"):
        opener(tmp_path / "wide").revision()


def test_a_partial_and_a_shallow_clone_are_named(tmp_path: Path, repo: GitRepo, opener: Opener) -> None:
    first = repo.git("rev-parse", "main")
    repo.commit({"shop/api.yaml": "a"})
    repo.git("config", "uploadpack.allowFilter", "true")
    url = f"file://{repo.path}"
    git(tmp_path, "clone", "--quiet", "--bare", "--filter=blob:none", url, str(tmp_path / "partial"))
    source = opener(tmp_path / "partial")
    [change, _] = source.repository.changes("", source.revision().tree)
    with pytest.raises(SourceError, match=r"an object is missing .* is a partial clone: .*fetch --refetch`"):
        source.repository.read(change.after)
    git(tmp_path / "partial", "config", "--unset", "remote.origin.partialclonefilter")
    git(tmp_path / "partial", "fetch", "--quiet", "--refetch", url, "main")  # as the message says
    assert opener(tmp_path / "partial").repository.read(change.after) == b"a"
    git(tmp_path, "clone", "--quiet", "--bare", "--depth=1", url, str(tmp_path / "shallow"))
    with pytest.raises(SourceNotFound, match=r"is not in the repository, which is a shallow clone: .*--unshallow"):
        opener(tmp_path / "shallow").revision(first)


@only_root("only root can be another user")
def test_a_repository_that_the_user_may_not_read_is_not_called_missing(repo: GitRepo, opener: Opener) -> None:
    with pytest.raises(SourceNotFound, match=r"no Git repository can be read at \S+: there is no such directory$"):
        opener(repo.path / "none").revision()
    repo.path.chmod(0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(SourceNotFound, match="its user may not read it"):
            opener(repo.path).revision()
    finally:
        os.seteuid(0)
