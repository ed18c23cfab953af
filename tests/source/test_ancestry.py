"""Which commits lead to which, compared with Git's own answers, and without influence of the repository's files."""

from __future__ import annotations

import random

import pygit2
import pytest

from reconciler.errors import SourceRewritten
from reconciler.source.ancestry import commits_since, is_ancestor
from reconciler.source.libgit import open_git
from reconciler.source.source import check_rewrite
from tests.source.conftest import Opener
from tests.support.git import GitRepo


def random_commits(git: pygit2.Repository, seed: int, count: int = 60) -> list[str]:
    """Commits with up to three parents each, made at times that have little to do with their order."""
    rng = random.Random(seed)
    tree = git.TreeBuilder().write()
    oids: list[pygit2.Oid] = []
    for number in range(count):
        near = oids[-8:]
        parents = rng.sample(near, min(len(near), rng.choice((0, 1, 1, 1, 2, 3)) if number > 1 else number))
        who = pygit2.Signature("Ada", "ada@example.com", 1_700_000_000 + rng.choice((number, rng.randrange(60))), 0)
        oids.append(git.create_commit(None, who, who, f"{number}", tree, parents))
    return [str(commit) for commit in oids]


@pytest.mark.parametrize("seed", range(6))
def test_the_answers_are_those_of_git(repo: GitRepo, seed: int) -> None:
    git = open_git(repo.path)
    commits = random_commits(git, seed)
    rng = random.Random(seed)
    for _ in range(12):
        older, newer = sorted(rng.sample(range(len(commits)), 2))
        one, other = commits[older], commits[newer]
        wanted = repo.git("rev-list", other, f"^{one}").split()
        assert sorted(commits_since(git.odb, one, other)) == sorted(wanted)
        contained = not repo.git("rev-list", one, f"^{other}")
        assert is_ancestor(git.odb, one, other) == contained
        assert is_ancestor(git.odb, other, one) is False


def test_a_chain_is_visited_no_further_than_its_beginning(repo: GitRepo) -> None:
    first = repo.commit({"a.yaml": "a"})
    before = repo.git("rev-parse", f"{first}^")
    later = [repo.commit({"a.yaml": f"{number}"}) for number in range(3)]
    assert commits_since(open_git(repo.path).odb, first, later[-1]) == later, "oldest first"
    shallow = repo.path.parent / "shallow.git"
    repo.git("clone", "--quiet", "--bare", "--depth=4", f"file://{repo.path}", str(shallow))
    few = open_git(shallow).odb
    assert before not in few
    assert commits_since(few, first, later[-1]) == later
    assert is_ancestor(few, first, later[-1])
    assert not is_ancestor(few, "1" * 40, later[-1]), "the history ends where the clone does"


@pytest.mark.parametrize("trick", ["graft", "shallow", "replace"])
def test_a_rewritten_branch_is_reported_against_claims_of_the_repository(
    repo: GitRepo, opener: Opener, trick: str
) -> None:
    before = repo.commit({"a.yaml": "a"})
    forced = repo.commit({"b.yaml": "b"}, parent="")
    (repo.path / "info").mkdir(exist_ok=True)
    if trick == "graft":
        (repo.path / "info/grafts").write_text(f"{forced} {before}\n")
    elif trick == "shallow":
        (repo.path / "shallow").write_text(f"{forced}\n")
    else:
        repo.git("replace", "--graft", forced, before)
    source = opener(repo.path)
    with pytest.raises(SourceRewritten):
        check_rewrite(source.repository, before, source.revision())
