"""The comments on pull requests of a source that the settings have no longer: each says so, once."""

from __future__ import annotations

import asyncio

import msgspec

from reconciler.clock import Clock
from reconciler.errors import RecordsError
from reconciler.logs import log
from reconciler.notifications.channels.channel import SendError
from reconciler.notifications.forges.client import ForgeRefusal
from reconciler.notifications.forges.comment import build_left_comment, make_secret_name
from reconciler.notifications.forges.facts import read_key
from reconciler.notifications.forges.followed import FollowedPull, FollowedPulls, find_followed, forget_place
from reconciler.notifications.forges.places import Place
from reconciler.notifications.forges.values import Forge
from reconciler.settings import Settings

FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0


class LeftPulls:
    """What was followed at ``place``, whose source was removed from ``settings``."""

    def __init__(self, settings: Settings, place: Place, forge: Forge, clock: Clock) -> None:
        self._settings = settings
        self._source = place.source
        self._forge = forge
        self._clock = clock
        self._pulls = FollowedPulls(find_followed(settings, place.source))

    async def run(self) -> None:
        """Try until each comment says it, and forget the pull requests then."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self.update_comments()
                return
            except (SendError, RecordsError, OSError) as error:
                if pause == FIRST_PAUSE:
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
        forget_place(self._settings, self._source)

    async def _write_comment(self, followed: FollowedPull, name: str) -> None:
        body = build_left_comment(name, self._source, self._forge.limits)
        try:
            await self._forge.write_comment(followed.number, body, followed.comment)
        except ForgeRefusal as refusal:
            # It was deleted, or is locked; others are not.
            log().warning("pull_requests", source=self._source, number=followed.number, message=str(refusal))
