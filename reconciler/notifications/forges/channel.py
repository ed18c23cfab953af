"""The channel of a forge: how far a commit is, on the commit itself."""

from __future__ import annotations

from collections import OrderedDict

from reconciler.logs import log
from reconciler.notifications.channels.channel import SendFailed, SendRefused
from reconciler.notifications.forges.bodies import build_summary, format_status_line
from reconciler.notifications.forges.client import ForgeRefusal
from reconciler.notifications.forges.registry import ForgeSet
from reconciler.notifications.forges.values import (
    CommitReport,
    DeployingForge,
    Forge,
    make_deployment_key,
    place_findings,
)
from reconciler.notifications.message import EventType, Message, State

SUMMARY = 60_000
"""The most characters of a summary."""
_REMEMBERED = 1_000
UNAUTHORIZED = 401
_LOGIN_REFUSED = frozenset({UNAUTHORIZED, 403})
"""What a forge answers to a token that is wrong, has ended or lacks a right. Commits wait for the next token."""


class ForgeChannel:
    """Shows runs, and refused revisions, as statuses of their commits at the forges of one entry of the settings."""

    def __init__(self, forges: ForgeSet) -> None:
        self.name = forges.name
        self._set = forges
        self._without_deployments = ""
        self._shown: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    async def send(self, message: Message, reference: str) -> str:
        """See Channel. A message that is older than the one that a commit shows is not sent."""
        if message.event is EventType.TEST:
            await self._check_access(message.source)
            return ""
        target = self._set.find(message)
        if not message.commit or target is None or message.event not in (EventType.RUN, EventType.REFUSED):
            return reference
        state = State.FAILURE if message.event is EventType.REFUSED else message.state
        repository, forge = target
        if state is State.NONE or not repository.settings.commits:
            return reference
        commit = (message.source, message.commit)
        if (message.at, message.sequence) < self._shown.get(commit, (0.0, 0)):
            return reference
        report = CommitReport(
            message.commit,
            state,
            repository.context,
            format_status_line(message, forge.limits.title),
            build_summary(message, SUMMARY),
            message.at,
            message.link,
            place_findings(message.findings, repository.path),
            repository.environment,
            branch=_read_ref(message),
            key=make_deployment_key(message.since),
            is_shared=repository.is_shared,
        )
        shown = await self._report(forge, report, reference)
        self._shown[commit] = (message.at, message.sequence)
        while len(self._shown) > _REMEMBERED:
            self._shown.popitem(last=False)
        return shown

    async def _report(self, forge: Forge, report: CommitReport, reference: str) -> str:
        """Show ``report`` on its commit, and as a deployment: neither has to wait for the other to be taken."""
        refused: ForgeRefusal | None = None
        try:
            reference = await forge.report_commit(report, reference)
        except ForgeRefusal as refusal:
            if refusal.status in _LOGIN_REFUSED:
                raise SendFailed(str(refusal)) from None
            refused = refusal
        if report.environment and isinstance(forge, DeployingForge):
            try:
                reference = await forge.report_deployment(report, reference)
                self._without_deployments = ""
            except ForgeRefusal as refusal:
                if refusal.status == UNAUTHORIZED:
                    raise SendFailed(str(refusal)) from None
                self._warn_of_deployment(report.commit, str(refusal))
        if refused is not None:
            raise refused
        return reference

    def _warn_of_deployment(self, commit: str, problem: str) -> None:
        """Log why ``commit`` has no deployment, once for each problem."""
        if problem != self._without_deployments:
            log().warning("notification", channel=self.name, message=f"{commit} is shown without deployment: {problem}")
        self._without_deployments = problem

    async def close(self) -> None:
        """See Channel."""
        await self._set.close()

    async def _check_access(self, source: str) -> None:
        names = [source] if source in self._set.forges else list(self._set.forges)
        if not names:
            raise SendRefused(f"no source is at the forge {self.name}")
        for name in names:
            await self._set.forges[name].check_access()


def _read_ref(message: Message) -> str:
    """The branch or tag from which a source took the commit of ``message``, "" if it was named or pinned."""
    ref, mark, _ = message.revision.partition("@sha1:")
    return ref if mark else ""
