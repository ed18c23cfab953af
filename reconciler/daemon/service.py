"""The daemon as a process: its lock, its signals, and one loop after another as its settings change."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reconciler import logs, tracing
from reconciler.bugs import internal_error
from reconciler.clock import Clock, SystemClock
from reconciler.daemon.api_process import ApiProcess
from reconciler.daemon.file_watch import FileWatch, WatchedFiles, watch_file, watch_ref, watch_tree
from reconciler.daemon.lock import StateLock
from reconciler.daemon.loop import SIGHUP, Daemon
from reconciler.daemon.measurements import collect_measurements
from reconciler.daemon.metrics_server import MetricsServer
from reconciler.daemon.reload import Reload
from reconciler.daemon.run_log import ProgressLog
from reconciler.daemon.systemd import SystemdNotifier
from reconciler.daemon.timers import SchedulerTimers
from reconciler.daemon.wake import CERTIFICATES, DRIFT, STATUS, WakeSocket
from reconciler.engines.registry import MakeEngine
from reconciler.errors import SourceError, StateLostError
from reconciler.iteration import report_progress_to
from reconciler.logs import log
from reconciler.notifications.forges.pull_requests import WAKE_REASON, PullRequestWork
from reconciler.pipeline.runner import Runner
from reconciler.records.store import FILE, Records
from reconciler.secrets.host_files import list_host_directories
from reconciler.settings import Settings
from reconciler.source.signing import check_signing_key
from reconciler.source.url import wanted_ref

QUIET_SECONDS = 0.5
"""Seconds without a further change after which files that people or programs write are read."""


class DaemonService:
    """Runs one loop at a time over one set of records; when the settings change, a new loop replaces it."""

    def __init__(
        self,
        runner: Runner,
        clock: Clock,
        engines: Mapping[str, MakeEngine] | None,
        reload: Reload | None,
        lock: StateLock,
    ) -> None:
        self._lock = lock
        self._lost: StateLostError | None = None
        self._clock = clock
        self._engines = engines
        self._reload = reload
        self._metrics = MetricsServer()
        self._api = ApiProcess(runner.settings.state)
        self._pull_requests = PullRequestWork(clock)
        self._notifier = SystemdNotifier()
        self._asked = False
        self._ended = False
        self._next: Runner | None = None
        self._daemon = self._make_daemon(runner)

    async def run(self) -> None:
        """Work until ``end``."""
        reason = "start"
        try:
            while True:
                await self._metrics.open(self._daemon.runner.settings.host.metrics.address, self._daemon.runner.metrics)
                await self._api.open(self._daemon.runner.settings, partial(collect_measurements, self._daemon.runner))
                await self._pull_requests.open(self._daemon.runner.settings)
                watch = FileWatch()
                await watch.open([*_list_watched(self._daemon), *self._list_settings()])
                try:
                    await self._daemon.run(reason)
                finally:
                    watch.close()
                if self._lost is not None:
                    raise self._lost
                if self._next is None or self._ended:
                    return
                ended, self._daemon, self._next, reason = self._daemon, self._make_daemon(self._next), None, "settings"
                ended.wakes.transfer_to(self._daemon.wakes)
        finally:
            await self._metrics.close()
            await self._api.close()
            await self._pull_requests.close()

    def _is_state_lost(self) -> bool:
        """Whether the locked state directory was deleted or replaced; then the daemon ends and writes nothing."""
        try:
            self._lock.check()
        except StateLostError as error:
            self._lost = error
            self.end()
        return self._lost is not None

    def end(self) -> None:
        """Stop working; the step in flight ends."""
        self._ended = True
        self._daemon.stop.set()

    def on_sighup(self) -> None:
        """Read the settings and the inputs of engines again, such as certificates, and wake every source."""
        self._asked = self._reload is not None
        self.wake(None, SIGHUP)

    def wake(self, source: str | None, reason: str) -> None:
        """Pass a wake-up to the running loop."""
        self._daemon.wakes.add(source, reason)
        if reason == WAKE_REASON:
            self._pull_requests.wake(source)

    def _make_daemon(self, runner: Runner) -> Daemon:
        return Daemon(runner, self._clock, SchedulerTimers(), self._notifier, self._over, self._is_state_lost)

    def _list_settings(self) -> Iterator[WatchedFiles]:
        if self._reload is not None:
            # It may have changed before it is watched.
            self._on_settings_event()
            yield watch_file(self._reload.file, self._on_settings_event)

    def _on_settings_event(self) -> None:
        if self._reload is not None:
            # If the file is the same at the second read, it is complete.
            self._reload.due()
            self._daemon.timers.after("settings", QUIET_SECONDS, self._check_settings)

    def _check_settings(self) -> None:
        if self._reload is None:
            return
        if self._reload.due():
            self._asked = True
            self.wake(STATUS, "settings")
        elif self._reload.is_changing:
            # It changed before it was watched, or is written just now: no other event may come.
            self._daemon.timers.after("settings", QUIET_SECONDS, self._check_settings)

    def _over(self) -> bool:
        """Whether a loop with new settings replaces this one; called between two runs."""
        if not self._asked or self._reload is None:
            return False
        self._asked = False
        self._next = self._reload.try_reload(self._runner)
        if self._next is None:
            return False
        self._notifier.reloading()
        logs.configure_logging(self._next.settings.log.format, self._next.settings.log.level)
        tracing.configure_tracing(self._next.settings.traces, self._next.settings.org)
        return True

    def _runner(self, settings: Settings) -> Runner:
        return Runner(settings, self._daemon.runner.records, self._clock, self._engines)


async def run_daemon(
    settings: Settings, engines: Mapping[str, MakeEngine] | None = None, file: Path | None = None
) -> None:
    """Run the daemon until a signal ends it; reload ``file``, the source of ``settings``, when it changes.

    Raises LockedError if another daemon uses the state directory, StateLostError if that is deleted meanwhile, and
    UsageError for a key that cannot sign.
    """
    check_signing_key(settings)
    clock = SystemClock(settings.state, writes=True)
    with StateLock(settings.state) as lock:
        records = Records.open(settings.state / FILE, clock_now=clock.now, expiry=clock.expiry)
        socket = WakeSocket(settings.state)
        try:
            reload = Reload(file, settings, records) if file is not None else None
            service = DaemonService(Runner(settings, records, clock, engines), clock, engines, reload, lock)
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(_on_loop_error)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, service.end)
            loop.add_signal_handler(signal.SIGHUP, service.on_sighup)
            socket.open(service.wake)
            tracing.configure_tracing(settings.traces, settings.org)
            log().info("started", state=str(settings.state), sources=[source.name for source in settings.sources])
            with report_progress_to(ProgressLog(clock.monotonic).report):
                await service.run()
        finally:
            socket.close()
            records.close()
            tracing.close_exporter()
        log().info("stopped")


def _on_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a bug in a callback, or in a task that no code awaits. The default handler would log its text."""
    error = context.get("exception")
    if isinstance(error, asyncio.CancelledError):
        return  # asyncio itself asks a cancelled task of a server for its exception
    if isinstance(error, BaseException):
        internal_error(error, "event loop")
    else:
        log().warning("event_loop", message=str(context.get("message", "")))


def _list_watched(daemon: Daemon) -> Iterator[WatchedFiles]:
    """What can change without a commit that is pushed elsewhere, and the wake-ups for it; polls go on.

    The ref of a source on this host counts at once. Other files count once nobody writes them any more.
    """
    settings, timers, wakes = daemon.runner.settings, daemon.timers, daemon.wakes
    for name, pipeline in daemon.runner.pipelines.items():
        # A commit never moves, and the mirror of a remote source moves by its own fetches alone.
        if not pipeline.source.local or pipeline.source.settings.commit:
            continue
        try:
            directory = pipeline.source.repository.commondir
        except SourceError as error:
            log().warning("watch_failed", source=name, message=str(error))
            continue
        yield watch_ref(directory, wanted_ref(pipeline.source.settings), partial(wakes.add, name, "ref"))
    check_secrets = partial(timers.after, "secrets", QUIET_SECONDS, partial(wakes.add, DRIFT, "secret"))
    if settings.drift.interval:
        for directory in sorted(list_host_directories(settings)):
            yield watch_tree(directory, check_secrets)
        if settings.secrets.identity is not None:
            yield watch_file(settings.secrets.identity, check_secrets)
    read_certificates = partial(
        timers.after, "certificates", QUIET_SECONDS, partial(wakes.add, CERTIFICATES, "changed")
    )
    ingresses = [location.ingress for location in settings.locations.values() if location.ingress is not None]
    for directory in sorted({ingress.certificates for ingress in ingresses if ingress.certificates is not None}):
        yield watch_tree(directory, read_certificates)
