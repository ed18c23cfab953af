"""Follows pull requests at forges beside the loop, which waits for none of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from reconciler.clock import Clock
from reconciler.errors import UsageError
from reconciler.listing import list_paths
from reconciler.logs import log
from reconciler.notifications.channels.secret_files import make_secret_files
from reconciler.settings import Settings
from reconciler.settings.forges import ForgeSettings
from reconciler.tasks import cancel_and_wait

if TYPE_CHECKING:
    from reconciler.notifications.forges.follower import PullFollower
    from reconciler.notifications.forges.job import PullJob, PullPlan
    from reconciler.notifications.forges.registry import ForgeSet

WAKE_REASON = "webhook"
"""The reason of wake-ups by which forges report news."""


class PullRequestWork:
    """Runs a follower for each source whose pull requests the settings follow; ``close`` ends them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._settings: Settings | None = None
        self._followers: list[tuple[str, PullFollower]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._sets: list[ForgeSet] = []
        # The plans of all pull requests together take one core at most.
        self._turn = asyncio.Semaphore(1)

    async def open(self, settings: Settings) -> None:
        """Follow what ``settings`` say; a change of them starts anew."""
        if settings == self._settings:
            return
        await self.close()
        self._settings = settings
        forges = settings.notifications.forges if settings.notifications is not None else {}
        self._start_leaving(settings, forges)
        following = {name: forge for name, forge in forges.items() if forge.pull_requests is not None}
        if not following:
            return
        # HTTP, which an idle daemon does without
        from reconciler.notifications.forges.registry import ForgeOptions, ForgeSet

        options = ForgeOptions(secrets=make_secret_files(settings))
        for name, forge in following.items():
            try:
                forge_set = ForgeSet(name, forge, settings.sources, self._clock, options)
            except UsageError as error:
                log().warning("pull_requests", forge=name, message=str(error))
                continue
            self._sets.append(forge_set)
            self._start_followers(settings, forge_set)

    def wake(self, source: str | None) -> None:
        """Look at the pull requests of ``source`` (None: of all) now."""
        for name, follower in self._followers:
            if source in (None, name):
                follower.wake()

    async def close(self) -> None:
        """End all followers, and the plan that is made."""
        self._settings = None
        tasks, self._tasks, self._followers = self._tasks, [], []
        await cancel_and_wait(tasks, "pull requests")
        sets, self._sets = self._sets, []
        for forge_set in sets:
            await forge_set.close()

    def _start_leaving(self, settings: Settings, forges: Mapping[str, ForgeSettings]) -> None:
        """Let comments of sources that were removed say so."""
        if not any(list_paths(settings.state / "forges", "*.repository")):
            return
        from reconciler.notifications.forge_repositories import FormerRepository
        from reconciler.notifications.forges.followed import forget_repository, list_left_repositories
        from reconciler.notifications.forges.follower import LeftPulls
        from reconciler.notifications.forges.registry import ForgeOptions, ForgeSet

        for repository in list_left_repositories(settings):
            if repository.forge not in forges:
                message = f"the settings have no forge {repository.forge} any more, so comments on pull requests stay"
                log().warning("pull_requests", source=repository.source, forge=repository.forge, message=message)
                forget_repository(settings, repository.source)
                continue
            options = ForgeOptions(secrets=make_secret_files(settings), former=(FormerRepository(repository, ""),))
            forge_set = ForgeSet(repository.forge, repository.settings, (), self._clock, options)
            self._sets.append(forge_set)
            left = LeftPulls(settings, repository, forge_set.get_former(repository.source), self._clock)
            self._tasks.append(asyncio.create_task(left.run(), name=f"pull requests of {repository.source}"))

    def _start_followers(self, settings: Settings, forge_set: ForgeSet) -> None:
        from reconciler.notifications.forges.followed import FollowedSource, remember_repository
        from reconciler.notifications.forges.follower import PullFollower

        follow = forge_set.settings.pull_requests
        assert follow is not None
        for source in settings.sources:
            # A tag or a commit has no pull requests.
            if source.name not in forge_set.forges or not source.branch:
                continue
            forge = forge_set.forges[source.name]
            remember_repository(settings, forge_set.repositories[source.name])
            followed = FollowedSource(settings, source, forge, forge_set.settings, follow)
            follower = PullFollower(followed, self._clock, self._plan)
            self._followers.append((source.name, follower))
            self._tasks.append(asyncio.create_task(follower.run(), name=f"pull requests of {source.name}"))

    async def _plan(self, job: PullJob) -> PullPlan:
        from reconciler.notifications.forges.job import run_job

        async with self._turn:
            return await run_job(job)
