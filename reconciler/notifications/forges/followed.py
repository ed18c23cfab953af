"""What is known of the pull requests of one source between two looks, in a file of the state directory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from reconciler.listing import list_paths
from reconciler.notifications.forge_repositories import ForgeRepository, decode_repository, encode_repository
from reconciler.notifications.forges.values import Forge
from reconciler.private_files import make_directory
from reconciler.settings import Settings, SourceSettings
from reconciler.settings.forges import ForgeSettings, PullRequestSettings

KEEP_SECONDS = 604_800.0
"""Seconds after a merge in which its outcome may still change in the comment."""


REPOSITORY_SUFFIX = ".repository"
"""How the names of files end that say where the pull requests of a source are."""


class FollowedSource(NamedTuple):
    """A source, and the repository at a forge in which its pull requests are."""

    settings: Settings
    source: SourceSettings
    forge: Forge
    forge_settings: ForgeSettings
    pull_requests: PullRequestSettings


class FollowedPull(msgspec.Struct, frozen=True):
    """A pull request as it was shown last.

    ``head`` and ``base`` are the commits whose plan the ``comment`` shows, ``digest`` is one of its text. ``reference``
    names the status of the head. ``summary`` is a line of the plan. ``merged`` is the commit that the branch has from
    it, since ``merged_at``. ``tries`` counts failed ones in a row.
    """

    number: int
    head: str = ""
    base: str = ""
    comment: str = ""
    digest: str = ""
    reference: str = ""
    summary: str = ""
    merged: str = ""
    merged_at: float = 0.0
    tries: int = 0


_decode = msgspec.json.Decoder(list[FollowedPull]).decode


def find_followed(settings: Settings, source: str) -> Path:
    """The file with the followed pull requests of ``source``."""
    return settings.state / "forges" / f"{source}.json"


def find_repository(settings: Settings, source: str) -> Path:
    """The file that says where the pull requests of ``source`` are."""
    return settings.state / "forges" / f"{source}{REPOSITORY_SUFFIX}"


def remember_repository(settings: Settings, repository: ForgeRepository) -> None:
    """Remember on disk where the pull requests of a source are."""
    path = find_repository(settings, repository.source)
    make_directory(path.parent)
    _write_file(path, encode_repository(repository))


def list_left_repositories(settings: Settings) -> list[ForgeRepository]:
    """Where pull requests were followed of sources that ``settings`` have no longer."""
    repositories = []
    sources = {source.name for source in settings.sources}
    for path in list_paths(settings.state / "forges", f"*{REPOSITORY_SUFFIX}"):
        if path.name.removesuffix(REPOSITORY_SUFFIX) not in sources:
            with suppress(OSError, msgspec.MsgspecError):
                repositories.append(decode_repository(path.read_bytes()))
    return repositories


def forget_repository(settings: Settings, source: str) -> None:
    """Forget the pull requests of ``source``."""
    find_followed(settings, source).unlink(missing_ok=True)
    find_repository(settings, source).unlink(missing_ok=True)


def _write_file(path: Path, raw: bytes) -> None:
    unfinished = path.with_suffix(".new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(raw)
    unfinished.rename(path)


class FollowedPulls:
    """The pull requests that are followed, by number. A lost file costs requests, and no message comes twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved = b""
        self.pulls: dict[int, FollowedPull] = {}
        with suppress(OSError, msgspec.MsgspecError):
            self._saved = path.read_bytes()
            self.pulls = {pull.number: pull for pull in _decode(self._saved)}

    def get(self, number: int) -> FollowedPull:
        """The pull request ``number``; a new one if it is not followed yet."""
        return self.pulls.get(number, FollowedPull(number))

    def put(self, pull: FollowedPull) -> None:
        """Remember ``pull``, on disk too."""
        self.pulls[pull.number] = pull
        self._write()

    def remove(self, number: int) -> None:
        """Forget the pull request ``number``."""
        if self.pulls.pop(number, None) is not None:
            self._write()

    def _write(self) -> None:
        raw = msgspec.json.encode(list(self.pulls.values()))
        if raw == self._saved:
            return
        make_directory(self._path.parent)
        _write_file(self._path, raw)
        self._saved = raw
