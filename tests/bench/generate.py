"""Repositories of many manifests, the same for the same numbers, and commits that change some of them."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import pygit2

from tests.bench import large_gvc, manifests, plain

FIRST_COMMIT = 1_767_225_600
"""2026-01-01T00:00:00Z, so that the same arguments give the same commit id."""
AUTHOR = "Bench <bench@example.com>"
FIXTURES: dict[str, Callable[[int], Iterator[tuple[str, str]]]] = {
    "published": manifests.files,
    "plain": plain.files,
    "large-gvc": large_gvc.files,
    "documents": large_gvc.documents,
}
"""What a repository is made of: name to the path and text of its files, for a number of manifests."""

IMAGE_TAG = re.compile(rb"(?m)^(      image: \S+:\d+\.\d+\.)(\d+)$")


def generate(path: Path, fixture: str, count: int, branch: str = "main") -> None:
    """Make ``path`` a bare repository whose ``branch`` holds ``count`` manifests of a fixture.

    Equal arguments give equal commit ids. Raises FileExistsError where ``path`` is not empty, and
    subprocess.CalledProcessError where git fails.
    """
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty")
    subprocess.run(["git", "init", "--quiet", "--bare", f"--initial-branch={branch}", str(path)], check=True)
    command = ["git", "-C", str(path), "fast-import", "--quiet", "--done"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as importer:
        assert importer.stdin is not None
        write_commit(importer.stdin, branch, FIXTURES[fixture](count), f"Deploy {count} manifests")
    if importer.returncode:
        raise subprocess.CalledProcessError(importer.returncode, command)


def write_commit(stream: IO[bytes], branch: str, files: Iterable[tuple[str, str]], message: str) -> None:
    """The one commit that holds every file, in the words of git fast-import."""
    stream.write(f"commit refs/heads/{branch}\ncommitter {AUTHOR} {FIRST_COMMIT} +0000\n".encode())
    stream.write(f"data {len(message)}\n{message}\n".encode())
    for name, text in files:
        body = text.encode()
        stream.write(f"M 100644 inline {name}\ndata {len(body)}\n".encode() + body)
    stream.write(b"done\n")


def commit_change(path: Path, files: int, seed: int, branch: str = "main") -> str:
    """Give ``files`` workloads a new image tag in one more commit on ``branch``; its id.

    Equal repositories, numbers and seeds give equal commits. Raises ValueError where there are fewer workloads.
    """
    repository = pygit2.Repository(str(path))
    parent = repository.branches.local[branch].peel(pygit2.Commit)
    root = repository.TreeBuilder(parent.tree)
    for team, names in chosen(parent.tree, files, random.Random(seed)).items():
        folder = repository.TreeBuilder(parent.tree[team].peel(pygit2.Tree))
        for name in names:
            before = parent.tree[f"{team}/{name}"].peel(pygit2.Blob).data
            folder.insert(name, repository.create_blob(released(before)), pygit2.enums.FileMode.BLOB)
        root.insert(team, folder.write(), pygit2.enums.FileMode.TREE)
    return _committed(repository, parent, root.write(), f"Release {files} services, seed {seed}\n", branch)


def commit_count(path: Path, file: str, pattern: str, branch: str = "main") -> str:
    """Count up the number behind the first ``pattern`` in ``file`` in one more commit on ``branch``; its id."""
    repository = pygit2.Repository(str(path))
    parent = repository.branches.local[branch].peel(pygit2.Commit)
    found = re.compile(rb"(%b)(\d+)" % pattern.encode())
    text, changed = found.subn(_counted, parent.tree[file].peel(pygit2.Blob).data, count=1)
    if not changed:
        raise ValueError(f"{file} has no such text: {pattern}")
    return commit_file(path, file, text, branch)


def commit_file(path: Path, file: str, text: bytes, branch: str = "main") -> str:
    """Write ``file`` in one more commit on ``branch``; its id."""
    repository = pygit2.Repository(str(path))
    parent = repository.branches.local[branch].peel(pygit2.Commit)
    index = pygit2.Index()
    index.read_tree(parent.tree)
    index.add(pygit2.IndexEntry(file, repository.create_blob(text), pygit2.enums.FileMode.BLOB))
    return _committed(repository, parent, index.write_tree(repository), f"Change {file}\n", branch)


def _committed(repository: pygit2.Repository, parent: pygit2.Commit, tree: pygit2.Oid, message: str, ref: str) -> str:
    author = pygit2.Signature("Bench", "bench@example.com", parent.commit_time + 60, 0)
    return str(repository.create_commit(f"refs/heads/{ref}", author, author, message, tree, [parent.id]))


def chosen(root: pygit2.Tree, files: int, chance: random.Random) -> dict[str, list[str]]:
    """Names of ``files`` workload manifests by folder; only the folders that chance falls on are read."""
    teams = entries(root, "team-")
    unused: dict[str, list[str]] = {}
    taken: dict[str, list[str]] = {}
    while files:
        if not teams:
            raise ValueError(f"there are {files} workloads too few to change so many")
        team = chance.choice(teams)
        if team not in unused:
            unused[team] = entries(root[team].peel(pygit2.Tree), "api-")
            chance.shuffle(unused[team])
        if unused[team]:
            taken.setdefault(team, []).append(unused[team].pop())
            files -= 1
        else:
            teams.remove(team)
    return taken


def entries(tree: pygit2.Tree, prefix: str) -> list[str]:
    """Names in ``tree`` that begin with ``prefix``."""
    return [str(entry.name) for entry in tree if str(entry.name).startswith(prefix)]


def released(manifest: bytes) -> bytes:
    """``manifest`` with the last number of its image tag one higher."""
    return IMAGE_TAG.sub(_counted, manifest)


def _counted(found: re.Match[bytes]) -> bytes:
    return found[1] + str(int(found[2]) + 1).encode()


def main(arguments: list[str]) -> int:
    """``python -m tests.bench.generate DIR COUNT [FIXTURE]``; 2 where the arguments are not these."""
    path, count, fixture, *more = *arguments, *("", "", "published")[len(arguments) :]
    if more or not count.isdigit() or fixture not in FIXTURES:
        print(f"usage: python -m tests.bench.generate DIR COUNT [{'|'.join(FIXTURES)}]", file=sys.stderr)
        return 2
    generate(Path(path), fixture, int(count))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
