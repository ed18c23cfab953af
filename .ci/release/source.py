"""The commit that a release is made of."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from release.failures import ReleaseFailed

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
SEEN = ("PATH", "HOME", "TMPDIR", "LANG", "XDG_CACHE_HOME")
"""Variables that a build sees, beside those of pip and of certificates."""
FORWARDED = ("PIP_", "SSL_CERT", "REQUESTS_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy")


class Source(NamedTuple):
    """The files of a commit, and what every file of the release has of it."""

    tree: Path
    commit: str
    epoch: int
    """Seconds since 1970, of the commit: no file of the release is newer."""
    version: str

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of everything that builds; the same for each build of the commit."""
        visible = {name: value for name, value in os.environ.items() if name in SEEN or name.startswith(FORWARDED)}
        return visible | {
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "TZ": "UTC",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def export_commit(root: Path, tree: Path) -> Source:
    """Write the files of the commit that is checked out in ``root`` below ``tree``.

    Raises ReleaseFailed if a file differs from it: what is released can be found again.
    """
    changed = _ask_git(root, "status", "--porcelain", "--untracked-files=no").decode().splitlines()
    if changed:
        raise ReleaseFailed(f"{len(changed)} files differ from the commit, such as {changed[0][3:]}: commit them first")
    commit = _ask_git(root, "rev-parse", "HEAD").decode().strip()
    epoch = int(_ask_git(root, "show", "--no-patch", "--format=%ct", commit))
    archive = _ask_git(root, "-c", "tar.umask=0022", "archive", "--format=tar", commit)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(tree, filter="tar")
    version = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["version"]
    return Source(tree, commit, epoch, version)


def _ask_git(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, check=False)
    if done.returncode:
        raise ReleaseFailed(f"a release is made in a checkout of Git: {done.stderr.decode().strip()}")
    return done.stdout
