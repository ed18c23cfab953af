"""Packs what commits of the status branch leave in a repository: a file for each object otherwise."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path

from reconciler.errors import SourceError
from reconciler.source.git_command import borrowed_objects, clean_environment
from reconciler.status.branch.owner import file_access_of, owner_of

EVERY = 500
"""Commits from one packing to the next; each leaves about seven objects.

More often would make more packs: libgit2 searches each of them for every object that it reads or writes, until the
process ends, also after git has merged them. Less often would leave so many objects that git collects by itself.
"""

_TIMEOUT = 300.0
"""Seconds after which a git command is killed."""
_UNREACHABLE = "1.hour.ago"
"""How long objects remain that nothing refers to: those of a commit that is being written are younger."""


def pack_own(repository: Path) -> None:
    """Pack a repository that is all ours, and drop the former history of its branch. Raises SourceError."""
    _git(repository, ["gc", "--quiet", f"--prune={_UNREACHABLE}"], clean_environment() | {"GIT_DIR": str(repository)})


def pack_commits(repository: Path, tips: Sequence[str], former: str) -> None:
    """Pack the objects of the commits from ``former`` ("": from the first) to ``tips``; all others stay as they are.

    The repository is somebody else's: what nothing refers to is left to the garbage collection of its owner. Raises
    SourceError.
    """
    objects = repository / "objects"
    with ExitStack() as scratch:
        with file_access_of(repository):
            environment = scratch.enter_context(borrowed_objects(objects))
        wanted = "".join(f"{tip}\n" for tip in tips) + (f"^{former}\n" if former else "")
        command = ["pack-objects", "--revs", "--quiet", "--non-empty", "--threads=1", str(objects / "pack" / "pack")]
        name = _git(repository, command, environment, wanted.encode()).strip().decode()
        if not name:
            return
        with file_access_of(repository):
            index = (objects / "pack" / f"pack-{name}.idx").read_bytes()
        listed = _git(repository, ["show-index"], environment, index)
    with file_access_of(repository):
        for line in BytesIO(listed):  # a first apply leaves an object for each resource: no list, and no Path for each
            oid = line.split(b" ")[1].decode()
            with suppress(FileNotFoundError):
                os.unlink(f"{objects}/{oid[:2]}/{oid[2:]}")


def _git(repository: Path, command: list[str], environment: dict[str, str], stdin: bytes = b"") -> bytes:
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
