"""Gitea and Forgejo, which have one API: commit statuses and comments."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.notifications.forges.client import ForgeClient
from reconciler.notifications.forges.login import Login
from reconciler.notifications.forges.paging import collect_pages
from reconciler.notifications.forges.values import Comment, CommitReport, ForgeLimits, PullRequest
from reconciler.notifications.message import State

_PAGE = 50
_MOST = 300
_DESCRIPTION = 255
_STATES = {
    State.PENDING: "pending",
    State.RUNNING: "pending",
    State.SUCCESS: "success",
    State.FAILURE: "failure",
    State.SUPERSEDED: "warning",
}


class _Named(msgspec.Struct):
    id: int


class _Comment(msgspec.Struct):
    id: int
    body: str = ""


class _Repository(msgspec.Struct):
    id: int


class _Branch(msgspec.Struct):
    ref: str
    sha: str
    repo_id: int = 0
    repo: _Repository | None = None


class _Pull(msgspec.Struct):
    number: int
    state: str
    head: _Branch
    base: _Branch
    merged: bool = False
    merge_commit_sha: str | None = None


class Gitea:
    """The repository ``path`` (``owner/name``)."""

    limits = ForgeLimits(title=_DESCRIPTION, comment=60_000, html=True)

    def __init__(self, client: ForgeClient, login: Login, path: str) -> None:
        self._client = client
        self._login = login.get_headers
        self._path = f"/repos/{path}"

    async def check_access(self) -> None:
        """See Forge."""
        await self._client.get(self._path, _Repository, self._login)

    async def report_commit(self, report: CommitReport, reference: str) -> str:  # noqa: ARG002 - of the protocol
        """See Forge. Of several statuses with one context, the last one counts."""
        fields: dict[str, Any] = {
            "state": _STATES[report.state],
            "context": report.context,
            "description": report.title[:_DESCRIPTION],
        }
        fields |= {"target_url": report.link} if report.link else {}
        await self._client.send("POST", f"{self._path}/statuses/{report.commit}", _Named, self._login, fields)
        return ""

    async def list_pull_requests(self, base: str) -> list[PullRequest]:
        """See Forge."""

        async def read(size: int, page: int) -> list[_Pull]:
            query: dict[str, str | int] = {"state": "open", "sort": "recentupdate", "limit": size, "page": page}
            return await self._client.get(f"{self._path}/pulls", list[_Pull], self._login, **query)

        found = await collect_pages(read, _PAGE, _MOST)
        # Older versions have no parameter for the branch.
        return [_convert_pull(pull) for pull in found if pull.base.ref == base]

    async def get_pull_request(self, number: int) -> PullRequest:
        """See Forge."""
        return _convert_pull(await self._client.get(f"{self._path}/pulls/{number}", _Pull, self._login))

    async def list_comments(self, number: int) -> list[Comment]:
        """See Forge."""
        path = f"{self._path}/issues/{number}/comments"
        got = await self._client.get(path, list[_Comment], self._login)
        return [Comment(str(comment.id), comment.body) for comment in got]

    async def write_comment(self, number: int, body: str, comment: str = "") -> str:
        """See Forge."""
        if comment:
            path = f"{self._path}/issues/comments/{comment}"
            await self._client.send("PATCH", path, _Named, self._login, {"body": body})
            return comment
        path = f"{self._path}/issues/{number}/comments"
        return str((await self._client.send("POST", path, _Named, self._login, {"body": body})).id)


def _convert_pull(pull: _Pull) -> PullRequest:
    return PullRequest(
        pull.number,
        pull.head.sha,
        pull.base.ref,
        f"refs/pull/{pull.number}/head",
        pull.head.repo is None or pull.head.repo_id != pull.base.repo_id,
        is_open=pull.state == "open",
        merge_commit=(pull.merge_commit_sha or "") if pull.merged else "",
    )
