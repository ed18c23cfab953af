"""Packs what commits of the status branch leave in a repository: a file for each object otherwise."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path

import msgspec

from reconciler.errors import SourceError
from reconciler.source.git_command import borrowed_objects, clean_environment
from reconciler.status.branch.owner import file_access_of, owner_of

EVERY = 200
"""Commits from one packing to the next; each leaves about seven objects."""
LARGEST = 25_000
"""The objects of the largest pack that two are merged into: git takes a second for it."""

_TIMEOUT = 300.0
"""Seconds after which a git command is killed."""
_UNREACHABLE = "1.hour.ago"
"""How long objects remain that nothing refers to: those of a commit that is being written are younger."""


class Pack(msgspec.Struct, frozen=True):
    """A pack file: the digest in its name, and the number of its objects."""

    name: str
    objects: int


def pack_own(repository: Path) -> None:
    """Pack a repository that is all ours, and drop the former history of its branch. Raises SourceError."""
    _run_git(
        repository, ["gc", "--quiet", f"--prune={_UNREACHABLE}"], clean_environment() | {"GIT_DIR": str(repository)}
    )


class OwnPacks:
    """The packs that this process makes in a repository of others.

    Two of about one size become one, as libgit2 searches each pack for every object that it reads or writes: with one
    more for every 200 commits, a commit would cost 7 % more after 5,000 of them.
    """

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._objects = repository / "objects"
        self._made: list[Pack] = []

    def add(self, tips: Sequence[str], former: str) -> None:
        """Pack the objects of the commits from ``former`` ("": from the first) to ``tips``; all others stay.

        What nothing refers to is left to the garbage collection of the repository's owner. Raises SourceError.
        """
        revisions = "".join(f"{tip}\n" for tip in tips) + (f"^{former}\n" if former else "")
        # After a failure, no pack is merged again.
        packs, self._made = self._made, []
        with ExitStack() as scratch:
            with file_access_of(self._repository):
                environment = scratch.enter_context(borrowed_objects(self._objects))
            if name := self._pack(["--revs"], revisions.encode(), environment):
                count = self._remove_loose(self._list_oids(name, environment))
                packs = [*filter(self._is_ours, packs), Pack(name, count)]
            while len(packs) > 1 and packs[-2].objects <= min(2 * packs[-1].objects, LARGEST - packs[-1].objects):
                *packs, one, other = packs
                packs.append(self._merge(one, other, environment))
        self._made = packs

    def _merge(self, one: Pack, other: Pack, environment: dict[str, str]) -> Pack:
        oids = b"".join(oid + b"\n" for pack in (one, other) for oid in self._list_oids(pack.name, environment))
        name = self._pack([], oids, environment)
        former = {one.name, other.name} - {name}  # if one has all objects of the other, the result is that one
        with file_access_of(self._repository):
            # Git too removes the index first: nobody looks for a pack without one.
            for suffix in ("idx", "rev", "pack"):
                for text in former:
                    self._path(text, suffix).unlink(missing_ok=True)
        return Pack(name, one.objects + other.objects)

    def _is_ours(self, pack: Pack) -> bool:
        """Whether the owner has neither collected it nor marked it as one to keep."""
        with file_access_of(self._repository):
            return self._path(pack.name, "idx").exists() and not self._path(pack.name, "keep").exists()

    def _pack(self, options: list[str], objects: bytes, environment: dict[str, str]) -> str:
        command = ["pack-objects", *options, "--quiet", "--non-empty", "--threads=1", str(self._objects / "pack/pack")]
        return _run_git(self._repository, command, environment, objects).strip().decode()

    def _list_oids(self, name: str, environment: dict[str, str]) -> Iterator[bytes]:
        """The ids of the objects of a pack, in hexadecimal digits."""
        with file_access_of(self._repository):
            index = self._path(name, "idx").read_bytes()
        # A first apply leaves an object for each resource: no list of them.
        return (line.split(b" ")[1] for line in BytesIO(_run_git(self._repository, ["show-index"], environment, index)))

    def _remove_loose(self, objects: Iterable[bytes]) -> int:
        """Remove the files of ``objects``, and return how many objects there are."""
        count = 0
        with file_access_of(self._repository):
            for oid in map(bytes.decode, objects):
                with suppress(FileNotFoundError):
                    os.unlink(f"{self._objects}/{oid[:2]}/{oid[2:]}")  # no Path for each
                count += 1
        return count

    def _path(self, name: str, suffix: str) -> Path:
        return self._objects / "pack" / f"pack-{name}.{suffix}"


def _run_git(repository: Path, command: list[str], environment: dict[str, str], stdin: bytes = b"") -> bytes:
    """The output of a git command that runs as the owner of ``repository``."""
    user, group = owner_of(repository) or (None, None)
    what = f"git {command[0]} in {repository}"
    try:
        answer = subprocess.run(
            ("git", *command),
            input=stdin,
            capture_output=True,
            cwd=environment["GIT_DIR"],
            env=environment,
            timeout=_TIMEOUT,
            user=user,
            group=group,
            extra_groups=None if user is None else (),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"{what} took longer than {_TIMEOUT:.0f} s") from None
    except OSError as fault:
        raise SourceError(f"{what} cannot be run: {fault}; is git installed?") from None
    if answer.returncode:
        raise SourceError(f"{what} failed: {answer.stderr.decode(errors='replace').strip()[-300:]}")
    return answer.stdout
