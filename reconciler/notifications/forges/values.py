"""What is told to a forge, and what it answers: plain values, the same for all forges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from reconciler.model.finding import Finding
from reconciler.notifications.message import State

FIRST = "0"
"""The key of the deployment of a commit to which a source came only once."""


def make_deployment_key(since: float) -> str:
    """The key of the deployment of a commit to which its source came at ``since``, 0 for the first one of all."""
    return f"{since * 1000:.0f}"


class CommitReport(msgspec.Struct, frozen=True):
    """How far a commit is, in the words of a status.

    ``context`` tells the statuses of a commit apart, such as ``reconciler/shop``. ``title`` is one line. ``summary`` is
    Markdown. ``link`` is a URL of our page, or empty. ``findings`` are shown at their lines where the forge can.
    ``environment`` is the one that the commit is deployed to, "" for none. ``branch`` is the one that has the commit,
    "" for that of the source. ``at`` is in seconds since the epoch. ``key`` tells the deployments of a commit apart,
    and is FIRST for the first one; ``is_shared`` says that other sources deploy to the environment, too.
    """

    commit: str
    state: State
    context: str
    title: str
    summary: str
    at: float
    link: str = ""
    findings: tuple[Finding, ...] = ()
    environment: str = ""
    branch: str = ""
    key: str = FIRST
    is_shared: bool = False


def place_findings(findings: Sequence[Finding], path: str) -> tuple[Finding, ...]:
    """``findings`` of a source with ``path``, with the paths that their files have in the repository."""
    prefix = "/".join(name for name in path.split("/") if name not in ("", "."))
    if not prefix:
        return tuple(findings)
    return tuple(msgspec.structs.replace(finding, path=f"{prefix}/{finding.path}") for finding in findings)


class PullRequest(msgspec.Struct, frozen=True):
    """A pull request: commit ``head`` is to be merged into the branch ``base``.

    ``head`` may be the first digits of a commit; ``branch`` is its branch in its own repository. ``fetch`` is the ref
    of the repository that has it, "" if none has: then nothing of it can be read here. ``is_fork`` says that another
    repository made it. ``merge_commit`` is the commit that the branch has from it, "" until it is merged.
    """

    number: int
    head: str
    base: str
    fetch: str
    is_fork: bool
    is_open: bool = True
    merge_commit: str = ""
    branch: str = ""


class Comment(msgspec.Struct, frozen=True):
    """A comment on a pull request."""

    id: str
    body: str


class ForgeLimits(msgspec.Struct, frozen=True):
    """What a forge takes: the most characters of a status line and of a comment, and whether it shows HTML."""

    title: int
    comment: int
    html: bool


class Forge(Protocol):
    """One repository at one forge. All methods raise SendRefused and SendFailed, and may be cancelled at any time."""

    limits: ForgeLimits

    async def check_access(self) -> None:
        """Raise SendRefused if the token may not read the repository."""

    async def report_commit(self, report: CommitReport, reference: str) -> str:
        """Show ``report``; return what names it at the forge, "" if nothing does.

        ``reference`` is that name from the former report on the same commit, or "": that one is changed.
        """

    async def list_pull_requests(self, base: str) -> list[PullRequest]:
        """The open pull requests into the branch ``base``, the last changed ones first; a bounded number."""

    async def get_pull_request(self, number: int) -> PullRequest:
        """The pull request ``number``, open or not."""

    async def list_comments(self, number: int) -> list[Comment]:
        """The first comments on a pull request, the oldest first; a bounded number."""

    async def write_comment(self, number: int, body: str, comment: str = "") -> str:
        """Let the comment ``comment`` have ``body``, or make a new one; returns its id."""


@runtime_checkable
class DeployingForge(Protocol):
    """A forge that shows deployments to environments. Its method raises SendRefused and SendFailed."""

    async def report_deployment(self, report: CommitReport, reference: str) -> str:
        """Set the state of the deployment of ``report``, which is made when the commit runs; return what names it.

        ``reference`` is that name from the former report on the same commit, or "". A deployment with another key is
        none of ``report``: one that it left unfinished is ended.
        """
