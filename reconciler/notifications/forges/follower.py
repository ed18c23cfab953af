"""Follows the pull requests of a source: shows the plan of each new head, the outcome after the merge, and an end."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import msgspec

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.errors import RecordsError
from reconciler.logs import log
from reconciler.notifications.channels.channel import SendError, SendFailed
from reconciler.notifications.forge_repositories import ForgeRepository
from reconciler.notifications.forges.client import AnswerTooLarge, ForgeRefusal
from reconciler.notifications.forges.comment import (
    build_head_report,
    build_left_comment,
    build_outcome_comment,
    build_plan_comment,
    make_secret_name,
)
from reconciler.notifications.forges.facts import SourceFacts, read_facts, read_key
from reconciler.notifications.forges.followed import (
    KEEP_SECONDS,
    FollowedPull,
    FollowedPulls,
    FollowedSource,
    find_followed,
    forget_repository,
)
from reconciler.notifications.forges.job import PullJob, PullPlan
from reconciler.notifications.forges.values import Forge, PullRequest, place_findings
from reconciler.notifications.message import State
from reconciler.settings import Settings

MOST_PULLS = 100
"""The most open pull requests that are followed, the last changed ones."""
MOST_PLANS = 20
"""The most plans of one round, so that one source with many pull requests delays no outcome for long."""
MOST_TRIES = 5
UNAUTHORIZED = 401
FIRST_LEFT_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
_GONE = (404, 410)

Plan = Callable[[PullJob], Awaitable[PullPlan]]


class PullFollower:
    """Keeps the comments on the pull requests of one source up to date: at intervals, and when it is woken."""

    def __init__(self, followed: FollowedSource, clock: Clock, plan: Plan) -> None:
        self._of = followed
        self._clock = clock
        self._plan = plan
        name = followed.source.name
        self._pulls = FollowedPulls(find_followed(followed.settings, name))
        self._wake = asyncio.Event()
        self._troubles = 0

    def wake(self) -> None:
        """Begin the next round now."""
        self._wake.set()

    async def run(self) -> None:
        """Work in rounds until the task is cancelled."""
        while True:
            self._wake.clear()
            pause = await self._update_contained()
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def update_comments(self) -> None:
        """Bring the comments up to date, once. Raises SendRefused, SendFailed and RecordsError."""
        merged = [pull.merged for pull in self._pulls.pulls.values() if pull.merged]
        facts = await asyncio.to_thread(read_facts, self._of.settings, self._of.source, merged)
        # Nothing is planned before the first revision is applied: all of it would be new.
        if not facts.applied:
            return
        pulls = await self._of.forge.list_pull_requests(self._of.source.branch)
        if not self._of.pull_requests.forks:
            pulls = [pull for pull in pulls if not pull.is_fork]
        await self._show_outcomes(facts)
        await self._find_closed({pull.number for pull in pulls})
        # Those of forks come last: anybody can make many.
        due = [pull for pull in sorted(pulls[:MOST_PULLS], key=lambda pull: pull.is_fork) if self._is_due(pull, facts)]
        for pull in due[:MOST_PLANS]:
            await self._try_pull(pull, facts)
        if len(due) > MOST_PLANS:
            self.wake()

    async def _update_contained(self) -> float:
        """One round; returns the seconds until the next one."""
        interval = self._of.pull_requests.interval
        try:
            await self.update_comments()
        except (SendError, RecordsError, OSError) as error:
            self._troubles += 1
            asked = (error.retry_after if isinstance(error, SendFailed) else None) or 0.0
            pause = min(max(interval * 2.0 ** min(self._troubles, 10), asked), LONGEST_PAUSE)
            if self._troubles == 1:
                log().warning("pull_requests", source=self._of.source.name, message=str(error))
            return max(pause, asked)
        except Exception as error:  # noqa: BLE001 - a bug here stops no other source
            internal_error(error, f"pull requests of {self._of.source.name}")
            return LONGEST_PAUSE
        if self._troubles:
            log().info("pull_requests", source=self._of.source.name, message="the forge answers again")
        self._troubles = 0
        return interval

    def _is_due(self, pull: PullRequest, facts: SourceFacts) -> bool:
        followed = self._pulls.get(pull.number)
        return (followed.head, followed.base) != (pull.head, facts.applied)

    async def _try_pull(self, pull: PullRequest, facts: SourceFacts) -> None:
        """Show the plan of ``pull``. What is about it alone, such as a lock, stops no other."""
        try:
            await self._show_plan(pull, facts)
        except SendError as refusal:
            if not _is_about_one(refusal):
                raise
            followed = self._pulls.get(pull.number)
            log().warning("pull_requests", source=self._of.source.name, number=pull.number, message=str(refusal))
            is_last = followed.tries >= MOST_TRIES
            followed = msgspec.structs.replace(followed, tries=0 if is_last else followed.tries + 1)
            if is_last:
                followed = msgspec.structs.replace(followed, head=pull.head, base=facts.applied)
            self._pulls.put(followed)

    async def _show_plan(self, pull: PullRequest, facts: SourceFacts) -> None:
        """Plan ``pull``, and show the plan in its comment, and as a status of its head."""
        of = self._of
        followed = self._pulls.get(pull.number)
        job = PullJob(of.settings, of.source.name, pull.number, pull.head, pull.fetch, pull.is_fork)
        plan = await self._plan(job)
        if plan.is_passing and followed.tries < MOST_TRIES:
            self._pulls.put(msgspec.structs.replace(followed, tries=followed.tries + 1))
            return
        name = make_secret_name(facts.key, of.source.name, pull.number)
        body = build_plan_comment(name, of.source.name, pull, plan, of.forge.limits)
        followed = await self._write_comment(followed, name, body)
        is_same_head = followed.head == pull.head
        reference = await self._report_head(pull, plan, followed.reference if is_same_head else "", is_same_head)
        shown = msgspec.structs.replace(
            followed, head=pull.head, base=facts.applied, reference=reference, summary=plan.summary, tries=0
        )
        self._pulls.put(shown)

    async def _report_head(self, pull: PullRequest, plan: PullPlan, reference: str, is_same_head: bool) -> str:
        """Set the status of the head of ``pull``; returns what names it. A refusal is logged: the comment is there."""
        if not self._of.forge_settings.commits or not plan.head:
            return reference
        context = f"{self._of.forge_settings.context}/{self._of.source.name}/plan"
        limits, now = self._of.forge.limits, self._clock.now()
        report = build_head_report(context, pull, plan, limits, now, is_new=not is_same_head)
        report = msgspec.structs.replace(report, findings=place_findings(report.findings, self._of.source.path))
        try:
            return await self._of.forge.report_commit(report, reference)
        except ForgeRefusal as refusal:
            log().warning("pull_requests", source=self._of.source.name, number=pull.number, message=str(refusal))
            return reference

    async def _write_comment(self, followed: FollowedPull, name: str, body: str) -> FollowedPull:
        """Let the one comment on ``followed`` have ``body``; returns ``followed`` with the comment."""
        digest = hashlib.blake2b(body.encode(), digest_size=16).hexdigest()
        if followed.comment and followed.digest == digest:
            return followed
        forge, number = self._of.forge, followed.number
        comment = followed.comment
        if comment:
            try:
                await forge.write_comment(number, body, comment)
            except ForgeRefusal as refusal:
                if refusal.status != 404:
                    raise
                comment = ""  # Somebody deleted it.
        if not comment:
            # After a crash it may be there: the first one with the name is ours, since nobody else knew the name.
            own = [old for old in await forge.list_comments(number) if name in old.body.partition("\n")[0]]
            comment = own[0].id if own else ""
            if not own or own[0].body != body:
                comment = await forge.write_comment(number, body, comment)
        followed = msgspec.structs.replace(followed, comment=comment, digest=digest)
        self._pulls.put(followed)
        return followed

    async def _try_comment(self, followed: FollowedPull, name: str, body: str) -> None:
        """Write the comment after the merge; a pull request that is deleted or locked stops no other."""
        try:
            await self._write_comment(followed, name, body)
        except SendError as refusal:
            if not _is_about_one(refusal):
                raise
            log().warning("pull_requests", source=self._of.source.name, number=followed.number, message=str(refusal))
            if followed.tries + 1 < MOST_TRIES:
                self._pulls.put(msgspec.structs.replace(followed, tries=followed.tries + 1))
            else:
                self._pulls.remove(followed.number)

    async def _find_closed(self, numbers: set[int]) -> None:
        """Note which followed pull requests were merged, and forget those that were closed otherwise."""
        for followed in list(self._pulls.pulls.values()):
            if followed.merged or followed.number in numbers:
                continue
            try:
                pull = await self._of.forge.get_pull_request(followed.number)
            except AnswerTooLarge:
                continue
            except ForgeRefusal as refusal:
                if refusal.status == UNAUTHORIZED:
                    raise
                if refusal.status in _GONE:
                    self._pulls.remove(followed.number)
                continue
            if pull.merge_commit:
                merged_at = self._clock.now()
                self._pulls.put(msgspec.structs.replace(followed, merged=pull.merge_commit, merged_at=merged_at))
                self.wake()
            elif not pull.is_open or pull.is_fork or pull.base != self._of.source.branch:
                self._pulls.remove(followed.number)

    async def _show_outcomes(self, facts: SourceFacts) -> None:
        """Show how the runs of merged pull requests ended."""
        source = self._of.source.name
        for followed in [pull for pull in self._pulls.pulls.values() if pull.merged]:
            message = facts.outcomes.get(followed.merged)
            if message is not None:
                name = make_secret_name(facts.key, source, followed.number)
                body = build_outcome_comment(name, source, followed.summary, message, self._of.forge.limits)
                await self._try_comment(followed, name, body)
            is_done = message is not None and message.state is State.SUCCESS
            if is_done or self._clock.now() - followed.merged_at > KEEP_SECONDS:
                self._pulls.remove(followed.number)


class LeftPulls:
    """What was followed at ``repository``, whose source was removed from ``settings``."""

    def __init__(self, settings: Settings, repository: ForgeRepository, forge: Forge, clock: Clock) -> None:
        self._settings = settings
        self._source = repository.source
        self._forge = forge
        self._clock = clock
        self._pulls = FollowedPulls(find_followed(settings, repository.source))

    async def run(self) -> None:
        """Try until each comment says it, and forget the pull requests then."""
        pause = FIRST_LEFT_PAUSE
        while True:
            try:
                await self.update_comments()
                return
            except (SendError, RecordsError, OSError) as error:
                if pause == FIRST_LEFT_PAUSE:
                    log().warning("pull_requests", source=self._source, message=str(error))
            await self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def update_comments(self) -> None:
        """Write what is not written yet. Raises SendFailed and RecordsError."""
        key = await asyncio.to_thread(read_key, self._settings)
        for followed in list(self._pulls.pulls.values()):
            if followed.comment:
                # If the source comes back before all is written, its plan is shown anew.
                self._pulls.put(msgspec.structs.replace(followed, head="", digest=""))
                await self._write_comment(followed, make_secret_name(key, self._source, followed.number))
            self._pulls.remove(followed.number)
        forget_repository(self._settings, self._source)

    async def _write_comment(self, followed: FollowedPull, name: str) -> None:
        body = build_left_comment(name, self._source, self._forge.limits)
        try:
            await self._forge.write_comment(followed.number, body, followed.comment)
        except ForgeRefusal as refusal:
            # It was deleted, or is locked; others are not.
            log().warning("pull_requests", source=self._source, number=followed.number, message=str(refusal))


def _is_about_one(error: SendError) -> bool:
    """Whether ``error`` may be about one pull request alone."""
    if isinstance(error, ForgeRefusal):
        return error.status != UNAUTHORIZED
    return isinstance(error, AnswerTooLarge)
