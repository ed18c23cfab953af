"""What `reconciler up` follows for the words of a person, and the locations that its manifests name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from reconciler.cli.local_settings import DEFAULT_LOCATION, Followed, follow_directory, is_remote, read_locations
from reconciler.errors import RefusedError, UsageError


def choose_source(source: str) -> Followed:
    """What ``source`` means: a directory of a repository, or a URL. Raises RefusedError and UsageError."""
    directory = Path(source)
    if not directory.exists():
        if not is_remote(source):
            raise UsageError(f"{source} does not exist; name a directory, or the URL of a repository")
        return Followed(source, _find_default_branch(source))
    if not directory.is_dir():
        raise UsageError(f"{source} is a file; name the directory of a repository, or a compose file: up -f {source}")
    return follow_directory(directory.resolve())


class Declared(NamedTuple):
    """What the newest commit says of itself: the locations that manifests name, or ``local``, and its org or ""."""

    locations: list[str]
    org: str


def read_declared(followed: Followed) -> Declared:
    """What the newest commit of ``followed`` says; a remote one is cloned. Raises RefusedError and SourceError."""
    if not is_remote(followed.url):
        return Declared(read_locations(followed), _read_org(followed))
    with _clone_remote(followed) as cloned:
        return Declared(read_locations(cloned) or [DEFAULT_LOCATION], _read_org(cloned))


def _read_org(followed: Followed) -> str:
    """The org that the repository itself names; "" for none. Raises SourceError."""
    from reconciler.pipeline.load import read_revision_settings
    from reconciler.settings import SourceSettings
    from reconciler.source.source import open_source

    source = SourceSettings(
        "main", followed.url, branch=followed.branch, commit=followed.commit, path=followed.path or "."
    )
    repository = open_source(source, Path(followed.url)).repository
    return read_revision_settings(repository, repository.resolve()).settings.org


def _find_default_branch(url: str) -> str:
    """The branch that HEAD of a remote repository names. Raises RefusedError."""
    answer = subprocess.run(
        ["git", "ls-remote", "--symref", "--", url, "HEAD"], capture_output=True, text=True, check=False
    )
    first = answer.stdout.partition("\n")[0]
    if answer.returncode or not first.startswith("ref: refs/heads/"):
        reason = answer.stderr.strip().rpartition("\n")[2] or "it has no branch"
        raise RefusedError(f"{url} cannot be followed: {reason}")
    return first.removeprefix("ref: refs/heads/").partition("\t")[0]


@contextmanager
def _clone_remote(followed: Followed) -> Iterator[Followed]:
    """The newest commit of a remote repository on this machine, for a moment. Raises RefusedError."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="reconciler-") as scratch:
        words = ["git", "clone", "--quiet", "--bare", "--depth=1", "--branch", followed.branch]
        answer = subprocess.run([*words, "--", followed.url, scratch], capture_output=True, text=True, check=False)
        if answer.returncode:
            raise RefusedError(f"{followed.url} cannot be cloned: {answer.stderr.strip()}")
        yield followed._replace(url=scratch)
