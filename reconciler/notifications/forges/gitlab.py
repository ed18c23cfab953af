"""GitLab: statuses of commits, notes on merge requests, and deployments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import msgspec

from reconciler.notifications.channels.channel import SendFailed
from reconciler.notifications.forges.client import ForgeClient, ForgeRefusal
from reconciler.notifications.forges.login import Login
from reconciler.notifications.forges.paging import collect_pages
from reconciler.notifications.forges.references import Reference
from reconciler.notifications.forges.values import FIRST, Comment, CommitReport, ForgeLimits, PullRequest
from reconciler.notifications.message import State

_PAGE = 100
_MOST = 300
_LAST = 20
"""Deployments among which that of a commit is searched."""
_DESCRIPTION = _LINK = 255
_STATES = {
    State.PENDING: "pending",
    State.RUNNING: "running",
    State.SUCCESS: "success",
    State.FAILURE: "failed",
    State.SUPERSEDED: "canceled",
}
_AGAIN = "Cannot transition status"
"""How GitLab refuses a status that the commit has already, or is beyond."""
_UNFINISHED = frozenset({"created", "running", "blocked"})
_GONE = 404
_BUSY = 409
"""What GitLab answers while it carries out another request about the same status."""


class _Named(msgspec.Struct):
    id: int


class _Deployment(msgspec.Struct):
    id: int
    sha: str = ""
    status: str = ""


class _Note(msgspec.Struct):
    id: int
    body: str = ""
    system: bool = False


class _Merge(msgspec.Struct):
    iid: int
    state: str
    sha: str | None
    target_branch: str
    source_branch: str = ""
    source_project_id: int | None = None
    target_project_id: int | None = None
    merge_commit_sha: str | None = None
    squash_commit_sha: str | None = None


class GitLab:
    """The project ``path`` (``group/subgroup/name``); ``branch`` is the one that its commits are on."""

    limits = ForgeLimits(title=_DESCRIPTION, comment=200_000, html=True)

    def __init__(self, client: ForgeClient, login: Login, path: str, branch: str) -> None:
        self._client = client
        self._login = login.get_headers
        self._path = f"/projects/{quote(path, safe='')}"
        self._branch = branch

    async def check_access(self) -> None:
        """See Forge."""
        await self._client.get(self._path, _Named, self._login)

    async def report_commit(self, report: CommitReport, reference: str) -> str:
        """See Forge. A status with the same name takes the place of the former one."""
        fields: dict[str, Any] = {
            "state": _STATES[report.state],
            "name": report.context,
            "description": report.title[:_DESCRIPTION],
            "ref": report.branch or self._branch,
        }
        fields |= {"target_url": report.link} if 0 < len(report.link) <= _LINK else {}
        with _pass_over_repetition():
            await self._client.send("POST", f"{self._path}/statuses/{report.commit}", _Named, self._login, fields)
        return reference

    async def report_deployment(self, report: CommitReport, reference: str) -> str:
        """See DeployingForge."""
        ids = Reference.parse(reference)
        deployment = ids.get_deployment(report.key)
        if not deployment or not await self._set_deployment(deployment, _STATES[report.state]):
            deployment = await self._find_deployment(report, ids.get("deployment"))
        return str(ids.with_deployment(deployment, report.key))

    async def list_pull_requests(self, base: str) -> list[PullRequest]:
        """See Forge."""

        async def read(size: int, page: int) -> list[_Merge]:
            query: dict[str, str | int] = {
                "state": "opened",
                "target_branch": base,
                "order_by": "updated_at",
                "sort": "desc",
                "per_page": size,
                "page": page,
            }
            return await self._client.get(f"{self._path}/merge_requests", list[_Merge], self._login, **query)

        return list(map(_convert_merge, await collect_pages(read, _PAGE, _MOST)))

    async def get_pull_request(self, number: int) -> PullRequest:
        """See Forge."""
        return _convert_merge(await self._client.get(f"{self._path}/merge_requests/{number}", _Merge, self._login))

    async def list_comments(self, number: int) -> list[Comment]:
        """See Forge."""

        async def read(size: int, page: int) -> list[_Note]:
            query: dict[str, str | int] = {"sort": "asc", "order_by": "created_at", "per_page": size, "page": page}
            path = f"{self._path}/merge_requests/{number}/notes"
            return await self._client.get(path, list[_Note], self._login, **query)

        found = await collect_pages(read, _PAGE, _MOST)
        return [Comment(str(note.id), note.body) for note in found if not note.system]

    async def write_comment(self, number: int, body: str, comment: str = "") -> str:
        """See Forge."""
        path = f"{self._path}/merge_requests/{number}/notes"
        if comment:
            await self._client.send("PUT", f"{path}/{comment}", _Named, self._login, {"body": body})
            return comment
        return str((await self._client.send("POST", path, _Named, self._login, {"body": body})).id)

    async def _set_deployment(self, deployment: str, status: str) -> bool:
        """Set the status of ``deployment``; False if somebody deleted it."""
        path = f"{self._path}/deployments/{deployment}"
        try:
            with _pass_over_repetition():
                await self._client.send("PUT", path, _Named, self._login, {"status": status})
        except ForgeRefusal as refusal:
            if refusal.status != _GONE:
                raise
            return False
        return True

    async def _find_deployment(self, report: CommitReport, former: str) -> str:
        """The id of the deployment of ``report`` in its state, "" for none; ``former`` is one of the commit before.

        An answer that was lost may have made it. GitLab keeps no key with it: that of a rollback is the last one of the
        environment.
        """
        if report.state is State.PENDING:
            return ""
        last = await self._list_deployments(report.environment)
        of_commit = [one for one in last if one.sha == report.commit]
        if report.key == FIRST:
            own = of_commit[:1]
        else:
            own = [one for one in last[:1] if one.sha == report.commit and str(one.id) != former]
            for left in [one for one in of_commit if one not in own and one.status in _UNFINISHED]:
                await self._set_deployment(str(left.id), _STATES[State.SUPERSEDED])
        if own:
            await self._set_deployment(str(own[0].id), _STATES[report.state])
            return str(own[0].id)
        return "" if report.state is State.SUPERSEDED else await self._create_deployment(report)

    async def _list_deployments(self, environment: str) -> list[_Deployment]:
        """The last deployments to ``environment``, newest first."""
        query: dict[str, str | int] = {"environment": environment, "order_by": "id", "sort": "desc", "per_page": _LAST}
        return await self._client.get(f"{self._path}/deployments", list[_Deployment], self._login, **query)

    async def _create_deployment(self, report: CommitReport) -> str:
        fields = {
            "environment": report.environment,
            "sha": report.commit,
            "ref": self._branch,
            "tag": False,
            "status": _STATES[report.state],
        }
        path = f"{self._path}/deployments"
        return str((await self._client.send("POST", path, _Named, self._login, fields)).id)


@contextmanager
def _pass_over_repetition() -> Iterator[None]:
    """Let GitLab refuse a state that something has already, or is beyond. What it is too busy for is tried again."""
    try:
        yield
    except ForgeRefusal as refusal:
        if refusal.status == _BUSY:
            raise SendFailed(str(refusal)) from None
        if refusal.status != 400 or _AGAIN not in str(refusal):
            raise


def _convert_merge(merge: _Merge) -> PullRequest:
    is_merged = merge.state == "merged"
    # A fast-forward has neither: then the branch has the head itself.
    commit = merge.merge_commit_sha or merge.squash_commit_sha or merge.sha or ""
    return PullRequest(
        merge.iid,
        merge.sha or "",
        merge.target_branch,
        f"refs/merge-requests/{merge.iid}/head",
        merge.source_project_id is None or merge.source_project_id != merge.target_project_id,
        is_open=merge.state in ("opened", "locked"),
        merge_commit=commit if is_merged else "",
        branch=merge.source_branch,
    )
