"""Bitbucket Data Center, formerly Server: build statuses and comments on pull requests. Its Markdown has no HTML."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.notifications.forges.client import ForgeClient, ForgeRefusal
from reconciler.notifications.forges.login import Login
from reconciler.notifications.forges.paging import collect_pages
from reconciler.notifications.forges.values import Comment, CommitReport, ForgeLimits, PullRequest
from reconciler.notifications.message import State

_PAGE = 50
_MOST = 300
_TEXT = 255
"""The most characters of the key, the name and the description of a status."""
_LINK = 450
_CONFLICT = 409
_STATES = {
    State.PENDING: "INPROGRESS",
    State.RUNNING: "INPROGRESS",
    State.SUCCESS: "SUCCESSFUL",
    State.FAILURE: "FAILED",
    State.SUPERSEDED: "CANCELLED",
}


class _Repository(msgspec.Struct):
    id: int


class _Ref(msgspec.Struct, rename="camel"):
    id: str
    latest_commit: str = ""
    repository: _Repository | None = None


class _Commit(msgspec.Struct):
    id: str = ""


class _Properties(msgspec.Struct, rename="camel"):
    merge_commit: _Commit | None = None


class _Pull(msgspec.Struct, rename="camel"):
    id: int
    state: str
    from_ref: _Ref
    to_ref: _Ref
    properties: _Properties | None = None


class _Pulls(msgspec.Struct):
    values: list[_Pull] = []


class _Comment(msgspec.Struct):
    id: int
    version: int = 0
    text: str = ""


class _Activity(msgspec.Struct):
    id: int = 0
    action: str = ""
    comment: _Comment | None = None


class _Activities(msgspec.Struct):
    values: list[_Activity] = []


class BitbucketServer:
    """The repository ``path`` (``PROJECT/name``); ``page`` is its URL for people."""

    limits = ForgeLimits(title=_TEXT, comment=32_000, html=False)

    def __init__(self, client: ForgeClient, login: Login, path: str, page: str) -> None:
        self._client = client
        self._login = login.get_headers
        project, _, name = path.partition("/")
        self._path = f"/api/latest/projects/{project}/repos/{name}"
        self._page = page

    async def check_access(self) -> None:
        """See Forge."""
        await self._client.get(self._path, _Repository, self._login)

    async def report_commit(self, report: CommitReport, reference: str) -> str:  # noqa: ARG002 - of the protocol
        """See Forge. A status with the same key takes the place of the former one."""
        own = f"{self._page}/commits/{report.commit}"
        fields: dict[str, Any] = {
            "key": report.context[:_TEXT],
            "state": _STATES[report.state],
            "name": report.context[:_TEXT],
            "description": report.title[:_TEXT],
            # No status is taken without a link, or with a longer one.
            "url": report.link if 0 < len(report.link) <= _LINK else own,
        }
        await self._client.send("POST", f"{self._path}/commits/{report.commit}/builds", type(None), self._login, fields)
        return ""

    async def list_pull_requests(self, base: str) -> list[PullRequest]:
        """See Forge."""

        async def read(size: int, page: int) -> list[_Pull]:
            query: dict[str, str | int] = {
                "state": "OPEN",
                "direction": "INCOMING",
                "at": f"refs/heads/{base}",
                "order": "NEWEST",
                "limit": size,
                "start": (page - 1) * size,
            }
            return (await self._client.get(f"{self._path}/pull-requests", _Pulls, self._login, **query)).values

        listed = await collect_pages(read, _PAGE, _MOST)
        return [_convert_pull(pull) for pull in listed if pull.to_ref.id == f"refs/heads/{base}"]

    async def get_pull_request(self, number: int) -> PullRequest:
        """See Forge."""
        return _convert_pull(await self._client.get(f"{self._path}/pull-requests/{number}", _Pull, self._login))

    async def list_comments(self, number: int) -> list[Comment]:
        """See Forge. Comments that belong to no line are only among the activities, the newest first."""

        async def read(size: int, page: int) -> list[_Activity]:
            query: dict[str, str | int] = {"limit": size, "start": (page - 1) * size}
            path = f"{self._path}/pull-requests/{number}/activities"
            return (await self._client.get(path, _Activities, self._login, **query)).values

        listed = await collect_pages(read, _PAGE, _MOST)
        comments = {
            activity.comment.id: Comment(str(activity.comment.id), activity.comment.text)
            for activity in listed
            if activity.action == "COMMENTED" and activity.comment is not None
        }
        return [comments[number] for number in sorted(comments)]

    async def write_comment(self, number: int, body: str, comment: str = "") -> str:
        """See Forge."""
        path = f"{self._path}/pull-requests/{number}/comments"
        if not comment:
            return str((await self._client.send("POST", path, _Comment, self._login, {"text": body})).id)
        try:
            await self._change_comment(f"{path}/{comment}", body)
        except ForgeRefusal as refusal:
            if refusal.status != _CONFLICT:
                raise
            # Somebody changed it since its version was read.
            await self._change_comment(f"{path}/{comment}", body)
        return comment

    async def _change_comment(self, path: str, body: str) -> None:
        version = (await self._client.get(path, _Comment, self._login)).version
        await self._client.send("PUT", path, _Comment, self._login, {"text": body, "version": version})


def _convert_pull(pull: _Pull) -> PullRequest:
    source, target = pull.from_ref.repository, pull.to_ref.repository
    merged = pull.properties.merge_commit.id if pull.properties and pull.properties.merge_commit else ""
    return PullRequest(
        pull.id,
        pull.from_ref.latest_commit,
        pull.to_ref.id.removeprefix("refs/heads/"),
        f"refs/pull-requests/{pull.id}/from",
        source is None or target is None or source.id != target.id,
        is_open=pull.state == "OPEN",
        merge_commit=merged if pull.state == "MERGED" else "",
    )
