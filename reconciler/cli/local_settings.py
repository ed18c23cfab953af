"""Settings that `reconciler up` writes for a repository: where they are, and what is in them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.errors import RefusedError, UsageError

if TYPE_CHECKING:
    import pygit2

SETTINGS_FILE = "settings.yaml"
DEFAULT_LOCATION = "local"
"""The location of manifests that name none."""
_ROOT_BASE = Path("/var/lib/reconciler-up")
"""For root: other users may enter it, as replicas of the default user have to, unlike root's home."""
_LOCATION = re.compile(rb"""(?:^|[\s'"\[/])/(?:/|org/[-a-z0-9]+/)location/([a-z0-9][-a-z0-9]*)""")
_KIND = re.compile(rb"""^\s*["']?kind["']?\s*:\s*["']?(gvc|workload|volumeset)\b""", re.MULTILINE)
_KUBERNETES = re.compile(rb"""^\s*["']?apiVersion["']?\s*:""", re.MULTILINE)
_COMPOSE = re.compile(rb"^services\s*:", re.MULTILINE)
_SHORTENED = 8

_HEAD = """\
# Written by `reconciler up` for a daemon on this machine. `reconciler up` writes it anew.
# Replicas end in a tenth of the time, so that changes show at once; leave terminationScale out where people depend on
# them.
"""


class Followed(NamedTuple):
    """What `up` follows: a ``branch`` of the repository ``url``, or a ``commit``, and the directory ``path`` in it."""

    url: str
    branch: str
    commit: str = ""
    path: str = ""

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return re.sub(r"(\.git)?/*$", "", self.url).rpartition("/")[2] or "repository"


def find_state_base() -> Path:
    """The directory that has one directory for each repository: of this user, or of root."""
    if named := os.environ.get("XDG_STATE_HOME"):
        return Path(named) / "reconciler"
    return _ROOT_BASE if os.geteuid() == 0 else Path.home() / ".local" / "state" / "reconciler"


def find_state(url: str) -> Path:
    """The state directory for the repository ``url``."""
    digest = hashlib.blake2b(url.encode(), digest_size=_SHORTENED // 2).hexdigest()
    return find_state_base() / f"{Followed(url, '').name}-{digest}"


def find_settings_here() -> Path | None:
    """The settings that `up` wrote for the repository of the working directory; None where there are none."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return None
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
    if root is None:
        return None
    path = find_state(str(root)) / SETTINGS_FILE
    return path if os.access(path, os.R_OK) else None


def follow_directory(directory: Path) -> Followed:
    """What to follow for ``directory``: the branch that is checked out in its repository.

    Raises RefusedError where there is no repository, or no commit.
    """
    import pygit2

    git_directory = pygit2.discover_repository(str(directory))
    if git_directory is None:
        raise RefusedError(f"{directory} is in no Git repository")
    repository = pygit2.Repository(git_directory)
    if repository.head_is_unborn:
        raise RefusedError(f"{directory} has no commit yet: git add --all && git commit")
    root = Path(repository.workdir or repository.path)
    path = "" if repository.is_bare else str(directory.relative_to(root.resolve()))
    head = repository.head
    if repository.head_is_detached:
        return Followed(str(root).rstrip("/"), "", str(head.target), "" if path == "." else path)
    return Followed(str(root).rstrip("/"), head.shorthand, "", "" if path == "." else path)


def list_uncommitted(directory: Path) -> list[str]:
    """The manifests in the work tree that differ from the commit, which do not run."""
    import pygit2

    repository = pygit2.Repository(pygit2.discover_repository(str(directory)) or str(directory))
    if repository.is_bare:
        return []
    quiet = pygit2.GIT_STATUS_CURRENT | pygit2.GIT_STATUS_IGNORED
    return sorted(
        path
        for path, status in repository.status().items()
        if status & ~quiet and path.endswith((".yaml", ".yml", ".json"))
    )


def read_locations(followed: Followed) -> list[str]:
    """The locations that the manifests of a local repository name, or ``local``.

    Raises RefusedError that says what is there instead of manifests.
    """
    import pygit2

    repository = pygit2.Repository(followed.url)
    commit = repository.revparse_single(followed.commit or followed.branch).peel(pygit2.Commit)
    tree = commit.tree / followed.path if followed.path else commit.tree
    assert isinstance(tree, pygit2.Tree)
    names: set[str] = set()
    is_ours, others = False, []
    for path, content in _list_files(repository, tree):
        names.update(name.decode() for name in _LOCATION.findall(content))
        is_ours = is_ours or _KIND.search(content) is not None
        if _COMPOSE.search(content):
            others.append(f"{path} is a compose file: reconciler convert {path} makes manifests of it")
        elif _KUBERNETES.search(content):
            others.append(f"{path} is of Kubernetes: reconciler convert {path} makes manifests of it")
    if is_ours:
        return sorted(names) or [DEFAULT_LOCATION]
    hint = others[0] if others else "`reconciler init DIR` writes some to begin with"
    raise RefusedError(f"{followed.url} has no manifests of workloads in its newest commit; {hint}")


def _list_files(repository: pygit2.Repository, tree: pygit2.Tree, above: str = "") -> Iterable[tuple[str, bytes]]:
    """Path and content of each file of YAML below ``tree``, without hidden ones."""
    import pygit2

    for entry in tree:
        name = f"{above}{entry.name}"
        if (entry.name or "").startswith("."):
            continue
        if isinstance(entry, pygit2.Tree):
            yield from _list_files(repository, entry, f"{name}/")
        elif isinstance(entry, pygit2.Blob) and name.endswith((".yaml", ".yml")):
            yield name, entry.data


def write_settings(followed: Followed, locations: Iterable[str], org: str) -> Path:
    """Write the settings for what is followed; returns the file. Raises UsageError."""
    from reconciler.documents.writer import render_document

    state = find_state(followed.url)
    file = state / SETTINGS_FILE
    text = render_document(build_settings(followed, locations, org))
    try:
        state.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(_HEAD + text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}") from None
    return file


def build_settings(followed: Followed, locations: Iterable[str], org: str) -> dict[str, Any]:
    """The settings as plain values."""
    from reconciler.engines.plugin import suggest_location

    source: dict[str, Any] = {"name": "main", "url": followed.url, "interval": "5s", "status": {"interval": "5s"}}
    source |= {"commit": followed.commit} if followed.commit else {"branch": followed.branch}
    if followed.path:
        source["path"] = followed.path
    return {
        "org": org,
        "state": ".",
        "sources": [source],
        "locations": {name: suggest_location() for name in locations},
        "host": {"terminationScale": 0.1},
        "api": {},
        "log": {"format": "console"},
    }
