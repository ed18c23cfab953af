"""The settings of forges: where outcomes are shown on commits and pull requests, and how this host logs in there."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec


class ForgeAppSettings(msgspec.Struct, frozen=True, rename="camel"):
    """An App of GitHub: its id, its private key, and its installation ("": the one that the repository has)."""

    id: str
    key_file: Path
    installation: str = ""


class PullRequestSettings(msgspec.Struct, frozen=True):
    """How pull requests are followed: they are listed every ``interval`` seconds; ``forks``: also those of forks."""

    interval: float = 60.0
    forks: bool = True


class ForgeSettings(msgspec.Struct, frozen=True, rename="camel"):
    """A forge, and the ``sources`` that have their repository there; (): all whose URL is at its host.

    ``type``, ``url`` and ``repository`` are "" for what the URL of the source says. ``username`` is for forges that
    take a token as a password. ``context`` begins the names of statuses. ``environment`` is what commits are deployed
    to, "" for no deployments. ``pull_requests`` is None: they are not followed.
    """

    type: Literal["", "bitbucket", "bitbucket-server", "forgejo", "gitea", "github", "gitlab"] = ""
    url: str = ""
    sources: tuple[str, ...] = ()
    repository: str = ""
    token_file: Path | None = None
    username: str = ""
    app: ForgeAppSettings | None = None
    ca_file: Path | None = None
    allow_insecure: bool = False
    context: str = "reconciler"
    commits: bool = True
    environment: str = ""
    pull_requests: PullRequestSettings | None = None
