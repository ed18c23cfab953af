"""Bitbucket Cloud: build statuses and comments on pull requests. Its Markdown has no HTML."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from reconciler.notifications.forges.client import ForgeClient
from reconciler.notifications.forges.login import Login
from reconciler.notifications.forges.paging import collect_pages
from reconciler.notifications.forges.values import Comment, CommitReport, ForgeLimits, PullRequest
from reconciler.notifications.message import State

_PAGE = 50
_COMMENTS = 100
_MOST = 300
_DESCRIPTION = 255
_KEY = 40
"""The most characters of the key of a status."""
_STATES = {
    State.PENDING: "INPROGRESS",
    State.RUNNING: "INPROGRESS",
    State.SUCCESS: "SUCCESSFUL",
    State.FAILURE: "FAILED",
    State.SUPERSEDED: "STOPPED",
}


class _Anything(msgspec.Struct):
    """Any object."""


class _Status(msgspec.Struct):
    key: str = ""


class _Named(msgspec.Struct):
    id: int


class _Content(msgspec.Struct):
    raw: str = ""


class _Comment(msgspec.Struct):
    id: int
    content: _Content = msgspec.field(default_factory=_Content)
    deleted: bool = False


class _Comments(msgspec.Struct):
    values: list[_Comment] = []


class _Commit(msgspec.Struct):
    hash: str = ""


class _Branch(msgspec.Struct):
    name: str = ""


class _Repository(msgspec.Struct):
    full_name: str = ""


class _End(msgspec.Struct):
    branch: _Branch
    commit: _Commit | None = None
    repository: _Repository | None = None


class _Pull(msgspec.Struct):
    id: int
    state: str
    source: _End
    destination: _End
    merge_commit: _Commit | None = None


class _Pulls(msgspec.Struct):
    values: list[_Pull] = []


class Bitbucket:
    """The repository ``path`` (``workspace/name``); ``page`` is its URL for people."""

    limits = ForgeLimits(title=_DESCRIPTION, comment=32_000, html=False)

    def __init__(self, client: ForgeClient, login: Login, path: str, page: str) -> None:
        self._client = client
        self._login = login.get_headers
        self._name = path
        self._path = f"/repositories/{path}"
        self._page = page

    async def check_access(self) -> None:
        """See Forge."""
        await self._client.get(self._path, _Anything, self._login)

    async def report_commit(self, report: CommitReport, reference: str) -> str:  # noqa: ARG002 - of the protocol
        """See Forge. A status with the same key takes the place of the former one."""
        fields: dict[str, Any] = {
            "key": _shorten_key(report.context),
            "state": _STATES[report.state],
            "name": report.context[:_DESCRIPTION],
            "description": report.title[:_DESCRIPTION],
            # Bitbucket takes no status without a link.
            "url": report.link or f"{self._page}/commits/{report.commit}",
        }
        path = f"{self._path}/commit/{report.commit}/statuses/build"
        await self._client.send("POST", path, _Status, self._login, fields)
        return ""

    async def list_pull_requests(self, base: str) -> list[PullRequest]:
        """See Forge."""
        quoted = base.replace("\\", "\\\\").replace('"', '\\"')

        async def read(size: int, page: int) -> list[_Pull]:
            query: dict[str, str | int] = {
                "state": "OPEN",
                "q": f'destination.branch.name = "{quoted}"',
                "sort": "-updated_on",
                "pagelen": size,
                "page": page,
            }
            return (await self._client.get(f"{self._path}/pullrequests", _Pulls, self._login, **query)).values

        found = await collect_pages(read, _PAGE, _MOST)
        return [self._convert_pull(pull) for pull in found if pull.destination.branch.name == base]

    async def get_pull_request(self, number: int) -> PullRequest:
        """See Forge."""
        return self._convert_pull(await self._client.get(f"{self._path}/pullrequests/{number}", _Pull, self._login))

    async def list_comments(self, number: int) -> list[Comment]:
        """See Forge."""

        async def read(size: int, page: int) -> list[_Comment]:
            query: dict[str, str | int] = {"sort": "created_on", "pagelen": size, "page": page}
            path = f"{self._path}/pullrequests/{number}/comments"
            return (await self._client.get(path, _Comments, self._login, **query)).values

        found = await collect_pages(read, _COMMENTS, _MOST)
        return [Comment(str(comment.id), comment.content.raw) for comment in found if not comment.deleted]

    async def write_comment(self, number: int, body: str, comment: str = "") -> str:
        """See Forge."""
        path = f"{self._path}/pullrequests/{number}/comments"
        fields = {"content": {"raw": body}}
        if comment:
            await self._client.send("PUT", f"{path}/{comment}", _Named, self._login, fields)
            return comment
        return str((await self._client.send("POST", path, _Named, self._login, fields)).id)

    def _convert_pull(self, pull: _Pull) -> PullRequest:
        source = pull.source.repository.full_name if pull.source.repository is not None else ""
        is_fork = source != self._name
        merged = pull.merge_commit.hash if pull.merge_commit is not None else ""
        return PullRequest(
            pull.id,
            pull.source.commit.hash if pull.source.commit is not None else "",
            pull.destination.branch.name,
            # There are no refs for pull requests, and the repository has no commit of a fork.
            "" if is_fork else f"refs/heads/{pull.source.branch.name}",
            is_fork,
            is_open=pull.state == "OPEN",
            merge_commit=merged if pull.state == "MERGED" else "",
        )


def _shorten_key(context: str) -> str:
    """``context`` in as many characters as a key may have; different ones stay different."""
    if len(context) <= _KEY:
        return context
    return f"{context[: _KEY - 13]}-{hashlib.sha256(context.encode()).hexdigest()[:12]}"
