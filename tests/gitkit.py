"""Real Git for tests: repositories made from dicts, and servers that speak https and ssh."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_ALLOW_PROTOCOL": "file",
}


@dataclass(frozen=True)
class Symlink:
    """A symbolic link to ``target``, for ``GitRepo.commit``."""

    target: str


@dataclass(frozen=True)
class Submodule:
    """A submodule at ``commit``, for ``GitRepo.commit``."""

    commit: str = "1" * 40


File = str | bytes | Symlink | Submodule | None
"""What a path gets in a commit: text, bytes, something odd, or ``None`` to take it away."""


def git(path: Path, *arguments: str, stdin: bytes = b"") -> str:
    """Run git in ``path``, with nobody's configuration; its output without the newline at the end."""
    done = subprocess.run(["git", *arguments], cwd=path, env=ENVIRONMENT, input=stdin, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.decode()}")
    return done.stdout.decode().removesuffix("\n")


class GitRepo:
    """A repository to write to. ``commit`` makes objects and moves the branch; a work tree is left as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._time = 1_700_000_000

    @classmethod
    def create(cls, path: Path, files: Mapping[str | bytes, File] | None = None, *, bare: bool = True) -> GitRepo:
        """A new repository at ``path``, with ``files`` in a first commit on ``main`` where there are any."""
        path.mkdir(parents=True, exist_ok=True)
        git(path, "init", "--quiet", "--initial-branch=main", *(["--bare"] if bare else []))
        repo = cls(path)
        if files:
            repo.commit(files)
        return repo

    def git(self, *arguments: str) -> str:
        """Run git in this repository."""
        return git(self.path, *arguments)

    def commit(
        self,
        files: Mapping[str | bytes, File],
        message: str = "Change",
        *,
        branch: str = "main",
        parent: str | None = None,
        whole: bool = False,
    ) -> str:
        """Commit ``files`` on top of the branch and return the commit's id.

        ``parent`` starts from another commit instead (``""``: from none, so history is rewritten); with ``whole`` the
        files are the entire tree.
        """
        ref = f"refs/heads/{branch}"
        start = self._tip(ref) if parent is None else parent
        self._time += 1
        lines = [b"commit " + ref.encode(), b"mark :1", b"committer Ada <ada@example.com> %d +0000" % self._time]
        lines += [b"data %d" % len(message.encode()), message.encode()]
        lines += [b"from " + start.encode()] if start else []
        lines += [b"deleteall"] if whole else []
        lines += [line for path, file in files.items() for line in _change(path, file)]
        if not start:
            lines.insert(0, b"reset " + ref.encode())
        stream = b"\n".join([*lines, b"get-mark :1", b""])
        return git(self.path, "fast-import", "--quiet", "--force", stdin=stream)

    def _tip(self, ref: str) -> str:
        return git(self.path, "for-each-ref", "--format=%(objectname)", ref)

    def clone_bare(self, path: Path) -> GitRepo:
        """A bare clone at ``path``."""
        git(self.path, "clone", "--quiet", "--bare", str(self.path), str(path))
        return GitRepo(path)


def _change(path: str | bytes, file: File) -> list[bytes]:
    raw = path.encode() if isinstance(path, str) else path
    escaped = raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    quoted = b'"' + escaped + b'"'
    if file is None:
        return [b"D " + quoted]
    if isinstance(file, Submodule):
        return [b"M 160000 " + file.commit.encode() + b" " + quoted]
    mode = b"120000" if isinstance(file, Symlink) else b"100644"
    text = file.target if isinstance(file, Symlink) else file
    content = text.encode() if isinstance(text, str) else text
    return [b"M " + mode + b" inline " + quoted, b"data %d" % len(content), content]
