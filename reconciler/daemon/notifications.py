"""The notifications of a daemon: their sender, with a connection to the records of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.clock import Clock
from reconciler.errors import RecordsError
from reconciler.logs import log
from reconciler.notifications.sender import Sender, forget_channels
from reconciler.pipeline.runner import Runner
from reconciler.records.notifications.repositories import FORMER, PLACE
from reconciler.records.store import Records
from reconciler.settings import Settings

if TYPE_CHECKING:
    from reconciler.notifications.forge_repositories import FormerRepository


class Notifications:
    """Sends what the settings of ``runner`` want; without that setting, it forgets what was to be sent."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock
        self._records: Records | None = None
        self._sender: Sender | None = None

    def open(self) -> None:
        """Begin; a failure of the records is logged, and the daemon goes on without."""
        try:
            self._open()
        except RecordsError as error:
            log().warning("notifications", reason=error.reason, message=str(error))

    def _open(self) -> None:
        settings, records = self._runner.settings, self._runner.records
        notifications = settings.notifications
        forget_channels(records, notifications)
        former = _update_repositories(records, settings)
        if notifications is None:
            records.notices.forget()
            return
        if records.path is None:
            return  # records in memory belong to tests and previews
        from reconciler.notifications.channels.registry import make_channels
        from reconciler.notifications.links import make_linker

        clock = self._clock
        self._records = Records.open(records.path, clock_now=clock.now, expiry=clock.expiry)
        channels = make_channels(settings, notifications, clock, former)
        self._sender = Sender(settings, self._records, clock, channels, make_linker(settings))
        self._sender.open()

    async def close(self) -> None:
        """Stop, and close the connection."""
        if self._sender is not None:
            await self._sender.close()
        if self._records is not None:
            self._records.close()


def _update_repositories(records: Records, settings: Settings) -> list[FormerRepository]:
    """Repositories that ``settings`` have no longer, and at which something is left to say. Raises RecordsError."""
    has_forges = settings.notifications is not None and bool(settings.notifications.forges)
    if not has_forges and not records.forge_repositories.list(PLACE) and not records.forge_repositories.list(FORMER):
        return []
    from reconciler.notifications.forge_repositories import update_repositories  # with modules that others do without

    return update_repositories(records, settings)
