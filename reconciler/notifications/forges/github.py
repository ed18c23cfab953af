"""GitHub: check runs with annotations for an App, commit statuses for a token; comments and deployments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from reconciler.model.finding import Severity
from reconciler.notifications.channels.channel import SendFailed
from reconciler.notifications.forges.client import ForgeClient, ForgeRefusal
from reconciler.notifications.forges.login import GitHubApp, Login
from reconciler.notifications.forges.paging import collect_pages
from reconciler.notifications.forges.references import Reference
from reconciler.notifications.forges.values import FIRST, Comment, CommitReport, ForgeLimits, PullRequest
from reconciler.notifications.message import State
from reconciler.printable import escape_text
from reconciler.times import format_iso_time

MOST_ANNOTATIONS = 50
"""The most annotations of one request."""
_PAGE = 100
_MOST = 300
_SUMMARY = 60_000
_DESCRIPTION = 140
_LEVELS = {Severity.ERROR: "failure", Severity.WARNING: "warning", Severity.NOTICE: "notice"}
_STATES = {
    State.PENDING: "pending",
    State.RUNNING: "pending",
    State.SUCCESS: "success",
    State.FAILURE: "failure",
    # A status has no word for it; whatever happens to the commit is shown at the newer one.
    State.SUPERSEDED: "success",
}
_CONCLUSIONS = {State.SUCCESS: "success", State.FAILURE: "failure", State.SUPERSEDED: "cancelled"}
_DEPLOYED = {
    State.PENDING: "queued",
    State.RUNNING: "in_progress",
    State.SUCCESS: "success",
    State.FAILURE: "failure",
    State.SUPERSEDED: "inactive",
}
_UNFINISHED = frozenset({"queued", "in_progress", "pending"})
_FORMER = 10
"""Deployments among which the one is searched that a new one follows."""
_GONE = 404

Answer = TypeVar("Answer")


class _Named(msgspec.Struct):
    id: int


class _Deployment(msgspec.Struct):
    id: int
    payload: Any = None


class _DeploymentStatus(msgspec.Struct):
    state: str


class _CheckRuns(msgspec.Struct):
    check_runs: list[_CheckRun]


class _CheckRun(msgspec.Struct):
    id: int
    external_id: str | None = None


class _Comment(msgspec.Struct):
    id: int
    body: str | None = ""


class _Repository(msgspec.Struct):
    full_name: str


class _Branch(msgspec.Struct):
    ref: str
    sha: str
    repo: _Repository | None = None


class _Pull(msgspec.Struct):
    number: int
    state: str
    head: _Branch
    base: _Branch
    merged_at: str | None = None
    merge_commit_sha: str | None = None


class GitHub:
    """The repository ``path`` (``owner/name``). A check run needs an App; with a token there are commit statuses."""

    limits = ForgeLimits(title=_DESCRIPTION, comment=65_000, html=True)

    def __init__(self, client: ForgeClient, login: Login, path: str) -> None:
        self._client = client
        self._login = login
        self._path = f"/repos/{path}"

    async def check_access(self) -> None:
        """See Forge."""
        await self._get("", _Repository)

    async def report_commit(self, report: CommitReport, reference: str) -> str:
        """See Forge."""
        ids = Reference.parse(reference)
        if isinstance(self._login, GitHubApp):
            ids = ids.with_id("check", await self._write_check_run(report, ids.get("check")))
        else:
            await self._send("POST", f"/statuses/{report.commit}", _Named, _build_status(report))
        return str(ids)

    async def report_deployment(self, report: CommitReport, reference: str) -> str:
        """See DeployingForge."""
        ids = Reference.parse(reference)
        deployment = ids.get_deployment(report.key)
        if not deployment or not await self._set_deployment(report, deployment):
            deployment = await self._find_deployment(report)
            if deployment:
                await self._set_deployment(report, deployment)
        if deployment and report.is_shared and report.state is State.SUCCESS:
            await self._end_former(await self._list_deployments(report), deployment, frozenset({"success"}), _FORMER)
        return str(ids.with_deployment(deployment, report.key))

    async def list_pull_requests(self, base: str) -> list[PullRequest]:
        """See Forge."""

        async def read(size: int, page: int) -> list[_Pull]:
            query: dict[str, str | int] = {"state": "open", "base": base, "sort": "updated", "direction": "desc"}
            return await self._get("/pulls", list[_Pull], **query, per_page=size, page=page)

        return list(map(_convert_pull, await collect_pages(read, _PAGE, _MOST)))

    async def get_pull_request(self, number: int) -> PullRequest:
        """See Forge."""
        return _convert_pull(await self._get(f"/pulls/{number}", _Pull))

    async def list_comments(self, number: int) -> list[Comment]:
        """See Forge."""

        async def read(size: int, page: int) -> list[_Comment]:
            return await self._get(f"/issues/{number}/comments", list[_Comment], per_page=size, page=page)

        found = await collect_pages(read, _PAGE, _MOST)
        return [Comment(str(comment.id), comment.body or "") for comment in found]

    async def write_comment(self, number: int, body: str, comment: str = "") -> str:
        """See Forge."""
        if comment:
            await self._send("PATCH", f"/issues/comments/{comment}", _Named, {"body": body})
            return comment
        return str((await self._send("POST", f"/issues/{number}/comments", _Named, {"body": body})).id)

    async def _write_check_run(self, report: CommitReport, run_id: str) -> str:
        """Create or change the check run of ``report``; returns its id."""
        if not run_id:
            query: dict[str, str | int] = {"check_name": report.context, "filter": "latest", "per_page": _PAGE}
            runs = await self._get(f"/commits/{report.commit}/check-runs", _CheckRuns, **query)
            own = [run for run in runs.check_runs if run.external_id == report.context]
            run_id = str(own[0].id) if own else ""
        fields = _build_check_run(report)
        if run_id:
            await self._send("PATCH", f"/check-runs/{run_id}", _Named, fields)
            return run_id
        made = await self._send("POST", "/check-runs", _Named, {**fields, "head_sha": report.commit})
        return str(made.id)

    async def _set_deployment(self, report: CommitReport, deployment: str) -> bool:
        """Set the state of ``deployment``; False if somebody deleted it."""
        fields = {
            "state": _DEPLOYED[report.state],
            "description": report.title[:_DESCRIPTION],
            # Else GitHub ends the deployments of other sources, too.
            "auto_inactive": not report.is_shared,
        }
        fields |= {"log_url": report.link} if report.link else {}
        try:
            await self._send("POST", f"/deployments/{deployment}/statuses", _Named, fields)
        except ForgeRefusal as refusal:
            if refusal.status != _GONE:
                raise
            return False
        return True

    async def _find_deployment(self, report: CommitReport) -> str:
        """The id of the deployment of ``report``, which an answer that was lost may have made; "" for none."""
        if report.state is State.PENDING:
            return ""
        deployments = await self._list_deployments(report, report.commit)
        own = next((str(one.id) for one in deployments if _has_key(one, report.key)), "")
        if not own and report.state is State.SUPERSEDED:
            return ""
        if report.key != FIRST:
            await self._end_former(deployments, own, _UNFINISHED, 1)
        return own or str((await self._create_deployment(report)).id)

    async def _list_deployments(self, report: CommitReport, commit: str = "") -> list[_Deployment]:
        """The last deployments of the source of ``report``, newest first; with ``commit``, only those of it."""
        query: dict[str, str | int] = {
            "environment": report.environment,
            "task": report.context,
            "per_page": _PAGE,
        }
        return await self._get("/deployments", list[_Deployment], **query, **({"sha": commit} if commit else {}))

    async def _end_former(self, deployments: list[_Deployment], own: str, states: frozenset[str], most: int) -> None:
        """End the newest deployment of ``deployments`` before ``own`` ("": of all) that is in one of ``states``.

        Only the ``most`` newest ones are looked at, and none before one that has ended already.
        """
        former = sorted((one.id for one in deployments if not own or one.id < int(own)), reverse=True)
        for number in former[:most]:
            path = f"/deployments/{number}/statuses"
            last = await self._get(path, list[_DeploymentStatus], per_page=1)
            state = last[0].state if last else "pending"
            if state in states:
                await self._send("POST", path, _Named, {"state": "inactive"})
            if state in (*states, "inactive"):
                return

    async def _create_deployment(self, report: CommitReport) -> _Named:
        # Without `auto_merge` and `required_contexts`, GitHub merges branches, and waits for checks.
        fields: dict[str, Any] = {
            "ref": report.commit,
            "task": report.context,
            "environment": report.environment,
            "auto_merge": False,
            "required_contexts": [],
        }
        fields |= {"payload": {"reconciler": report.key}} if report.key != FIRST else {}
        return await self._send("POST", "/deployments", _Named, fields)

    async def _get(self, path: str, kind: type[Answer], **query: str | int) -> Answer:
        return await self._send("GET", path, kind, None, query)

    async def _send(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> Answer:
        try:
            return await self._client.send(method, self._path + path, kind, self._login.get_headers, body, query)
        except ForgeRefusal as refusal:
            if refusal.status != 401 or not self._login.forget():
                raise
        # The token of the App ended early, as when its rights changed.
        try:
            return await self._client.send(method, self._path + path, kind, self._login.get_headers, body, query)
        except ForgeRefusal as refusal:
            if refusal.status == 401:
                raise SendFailed(str(refusal)) from None
            raise


def _has_key(deployment: _Deployment, key: str) -> bool:
    """Whether ``deployment`` was made with ``key``. Its payload may be an object, or a text that has one."""
    return key == FIRST or key in msgspec.json.encode(deployment.payload).decode()


def _build_status(report: CommitReport) -> dict[str, Any]:
    fields = {
        "state": _STATES[report.state],
        "context": report.context,
        "description": report.title[:_DESCRIPTION],
    }
    return fields | ({"target_url": report.link} if report.link else {})


def _build_check_run(report: CommitReport) -> dict[str, Any]:
    output: dict[str, Any] = {"title": report.title[:255], "summary": report.summary[:_SUMMARY]}
    fields: dict[str, Any] = {"name": report.context, "external_id": report.context, "output": output}
    fields |= {"details_url": report.link} if report.link else {}
    if not report.state.is_final:
        return {**fields, "status": "in_progress" if report.state is State.RUNNING else "queued"}
    if report.findings:
        # Each request adds its annotations to those of the former ones, so that only the last one has them.
        output["annotations"] = [_build_annotation(report, number) for number in range(_count_annotations(report))]
    return {
        **fields,
        "status": "completed",
        "conclusion": _CONCLUSIONS[report.state],
        "completed_at": format_iso_time(report.at),
    }


def _count_annotations(report: CommitReport) -> int:
    return min(len(report.findings), MOST_ANNOTATIONS)


def _build_annotation(report: CommitReport, number: int) -> dict[str, Any]:
    finding = report.findings[number]
    line = max(finding.line, 1)
    message = f"{finding.message}\n{finding.suggestion}" if finding.suggestion else finding.message
    return {
        "path": finding.path,
        "start_line": line,
        "end_line": line,
        "annotation_level": _LEVELS[finding.severity],
        "title": escape_text(finding.rule)[:255],
        "message": "\n".join(map(escape_text, message.split("\n")))[:2_000],
    }


def _convert_pull(pull: _Pull) -> PullRequest:
    own = pull.base.repo.full_name if pull.base.repo is not None else ""
    is_fork = pull.head.repo is None or pull.head.repo.full_name != own
    return PullRequest(
        pull.number,
        pull.head.sha,
        pull.base.ref,
        f"refs/pull/{pull.number}/head",
        is_fork,
        is_open=pull.state == "open",
        merge_commit=(pull.merge_commit_sha or "") if pull.merged_at else "",
    )
