"""Settings that `reconciler up` writes for a repository: where they are, and what is in them."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.errors import RefusedError, UsageError
from reconciler.local_state import SETTINGS_FILE, find_state

if TYPE_CHECKING:
    import pygit2

DEFAULT_LOCATION = "local"
"""The location of manifests that name none."""
_LOCATION = re.compile(rb"""(?:^|[\s'"\[/])/(?:/|org/[-a-z0-9]+/)location/([a-z0-9][-a-z0-9]*)""")
_KIND = re.compile(rb"""^\s*["']?kind["']?\s*:\s*["']?(gvc|workload|volumeset)\b""", re.MULTILINE)
_FIRST_PAGE_PORT, _PAGE_PORTS = 7400, 200
_reservations: list[socket.socket] = []
"""Open until this process ends: each has a name that tells another `up` which port is chosen here."""
_KUBERNETES = re.compile(rb"""^\s*["']?apiVersion["']?\s*:""", re.MULTILINE)
_COMPOSE = re.compile(rb"^services\s*:", re.MULTILINE)
FOR_TERMINALS = ("host", "log", "state")
"""The settings that a service has in another way: changes show at once, and all is in one directory."""

_HEAD = """\
# Written by `reconciler up` for a daemon on this machine. `reconciler up` writes it anew.
# Replicas end in a tenth of the time, so that changes show at once; leave terminationScale out where people depend on
# them.
"""


class Followed(NamedTuple):
    """What `up` follows: a ``branch`` of the repository ``url``, or a ``commit``, and the directory ``path`` in it.

    The state directory is that of ``key``, of the URL where it is "".
    """

    url: str
    branch: str
    commit: str = ""
    path: str = ""
    key: str = ""

    @property
    def state(self) -> Path:
        """The state directory of what is followed."""
        return find_state(self.key or self.url)


def is_remote(source: str) -> bool:
    """Whether ``source`` is a URL, not a path. Raises UsageError for one that names a program or has a password."""
    from reconciler.source.url import parse_address

    return parse_address(source).path is None or "://" in source


def make_state(key: str) -> Path:
    """The state directory for ``key``, made if it is missing. Raises UsageError."""
    state = find_state(key)
    try:
        state.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{state} cannot be made: {error.strerror or error}; set $XDG_STATE_HOME") from None
    return state


def follow_directory(directory: Path) -> Followed:
    """What to follow for ``directory``: the branch that is checked out in its repository.

    Raises RefusedError where there is no repository, or no commit, and SourceError for one that cannot be read.
    """
    import pygit2

    from reconciler.source.libgit import open_git

    git_directory = pygit2.discover_repository(str(directory))
    if git_directory is None:
        raise RefusedError(f"{directory} is in no Git repository")
    repository = open_git(Path(git_directory))
    if repository.head_is_unborn:
        raise RefusedError(f"{directory} has no commit yet: git add --all && git commit")
    root = Path(repository.workdir or repository.path)
    path = "" if repository.is_bare else str(directory.relative_to(root.resolve()))
    head = repository.head
    if repository.head_is_detached:
        return Followed(str(root).rstrip("/"), "", str(head.target), "" if path == "." else path)
    return Followed(str(root).rstrip("/"), head.shorthand, "", "" if path == "." else path)


def read_locations(followed: Followed) -> list[str]:
    """The locations that the manifests of a local repository name, or ``local``.

    Raises RefusedError that says what is there instead of manifests.
    """
    import pygit2

    repository = pygit2.Repository(followed.url)
    commit = repository.revparse_single(followed.commit or followed.branch).peel(pygit2.Commit)
    tree = commit.tree / followed.path if followed.path else commit.tree
    assert isinstance(tree, pygit2.Tree)
    return _find_locations(_list_files(repository, tree), f"{followed.url} has no manifests in its newest commit")


def check_directory(directory: Path) -> None:
    """Raise RefusedError, with what to do, where ``directory``, in no repository, has files of other tools only.

    A repository of them would run nothing.
    """
    from reconciler.documents.limits import read_within
    from reconciler.review.folder import list_manifest_paths

    paths = sorted(list_manifest_paths(directory))
    with suppress(OSError, UsageError):
        contents = [(path, read_within(directory / path)) for path in paths]
        if any(_COMPOSE.search(content) or _KUBERNETES.search(content) for _, content in contents):
            _find_locations(contents, f"{directory} has no manifests")


def _find_locations(files: Iterable[tuple[str, bytes]], problem: str) -> list[str]:
    """The locations that ``files`` name, or ``local``; raises RefusedError where none of them is a manifest."""
    names: set[str] = set()
    is_ours, others = False, []
    for path, content in files:
        names.update(name.decode() for name in _LOCATION.findall(content))
        is_ours = is_ours or _KIND.search(content) is not None
        if _COMPOSE.search(content):
            others.append(f"{path} is a compose file: reconciler up -f {path} runs it")
        elif _KUBERNETES.search(content):
            others.append(f"{path} is of Kubernetes: reconciler up --k8s {os.path.dirname(path) or '.'} runs it")
    if is_ours:
        return sorted(names) or [DEFAULT_LOCATION]
    hint = others[0] if others else "`reconciler init DIR` writes some to begin with"
    raise RefusedError(f"{problem}; {hint}")


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


def write_settings(followed: Followed, locations: Iterable[str], org: str, more: tuple[str, ...] = ()) -> Path:
    """Write the settings for what is followed, and ``more`` as ``FIELD=VALUE``; returns the file. Raises UsageError."""
    from reconciler.documents.editing.patches import assign_fields
    from reconciler.documents.writer import render_document

    file = make_state(followed.key or followed.url) / SETTINGS_FILE
    text = render_document(assign_fields(build_settings(followed, locations, org, _keep_page_port(file)), more))
    try:
        file.write_text(_HEAD + text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}") from None
    return file


def add_locations(file: Path, locations: Iterable[str]) -> None:
    """Bind ``locations`` to this machine in the settings that `up` wrote to ``file``. Raises UsageError."""
    import yaml

    from reconciler.documents.writer import render_document
    from reconciler.engines.plugin import suggest_location

    try:
        value = yaml.safe_load(file.read_text(encoding="utf-8"))
        value["locations"] |= {name: suggest_location() for name in locations}
        part = file.with_name(f"{file.name}.part")
        part.write_text(_HEAD + render_document(value), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}") from None


def _keep_page_port(file: Path) -> int:
    """The port of the page in the settings ``file``, so that its address stays; 0 where another program has it now."""
    import yaml

    from reconciler.daemon.lock import find_lock_holder

    port = 0
    with suppress(OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        address: str = yaml.safe_load(file.read_text(encoding="utf-8"))["api"]["address"]
        port = int(address.rpartition(":")[2])
    return port if find_lock_holder(file.parent) is not None or _is_free(port) else 0


def choose_page_port() -> int:
    """A port on loopback that no program uses, from the first one on that is meant for pages.

    Another `up` does not choose it before the daemon of this one listens there.
    """
    for port in range(_FIRST_PAGE_PORT, _FIRST_PAGE_PORT + _PAGE_PORTS):
        if _is_free(port) and _reserve_port(port):
            return port
    raise RefusedError(f"all ports from {_FIRST_PAGE_PORT} to {_FIRST_PAGE_PORT + _PAGE_PORTS - 1} are taken")


def _is_free(port: int) -> bool:
    with suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def _reserve_port(port: int) -> bool:
    """Whether ``port`` is reserved for this process now; False if another one has chosen it."""
    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        reservation.bind(f"\0reconciler-page-{port}")
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation)
    return True


def build_settings(followed: Followed, locations: Iterable[str], org: str, page_port: int = 0) -> dict[str, Any]:
    """The settings as plain values; without a ``page_port``, one is chosen."""
    from reconciler.engines.plugin import suggest_location
    from reconciler.source.url import parse_address

    source: dict[str, Any] = {"name": "main", "url": followed.url, "interval": "5s", "status": {"interval": "5s"}}
    source |= {"commit": followed.commit} if followed.commit else {"branch": followed.branch}
    path = parse_address(followed.url).path
    if path is None:
        source["status"] |= {"push": False}  # a trial writes nothing to a repository elsewhere
    if followed.path:
        source["path"] = followed.path
    api = {"address": f"127.0.0.1:{page_port or choose_page_port()}"}
    if path is not None and (path / ".git").exists():
        api |= {"writes": "branch"}  # the files that are checked out would not follow a commit of the API
    return {
        "org": org,
        "state": ".",
        "sources": [source],
        "locations": {name: suggest_location() for name in locations},
        "host": {"terminationScale": 0.1},
        "api": api,
        "log": {"format": "console"},
    }
