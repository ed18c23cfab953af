"""The daemon as a process: its lock, its signals, and one loop after another as its settings change."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reconciler import logs, tracing
from reconciler.bugs import contained, internal_error
from reconciler.clock import Clock, SystemClock
from reconciler.daemon.allocator import fix_mmap_threshold
from reconciler.daemon.api_process import ApiProcess
from reconciler.daemon.lock import StateLock
from reconciler.daemon.loop import SIGHUP, Daemon
from reconciler.daemon.measurements import measure
from reconciler.daemon.metrics_server import MetricsServer
from reconciler.daemon.ref_watch import watch_refs
from reconciler.daemon.reload import SETTINGS_POLL_SECONDS, Reload
from reconciler.daemon.systemd import SystemdNotifier
from reconciler.daemon.timers import SchedulerTimers
from reconciler.daemon.wake import STATUS, WakeSocket
from reconciler.engines.registry import ENGINES, MakeEngine
from reconciler.errors import SourceError, StateLostError
from reconciler.logs import log
from reconciler.pipeline.runner import Runner
from reconciler.records.store import FILE, Records
from reconciler.settings import Settings
from reconciler.source.signing import check_signing_key

STATE_CHECK_SECONDS = 1.0
"""Seconds between checks that the state directory still exists; each round of the loop checks too."""


class Service:
    """Runs one loop at a time over one set of records; when the settings change, a new loop replaces it."""

    def __init__(
        self,
        runner: Runner,
        clock: Clock,
        engines: Mapping[str, MakeEngine],
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
        self._notifier = SystemdNotifier()
        self._asked = False
        self._ended = False
        self._next: Runner | None = None
        self._daemon = self._make_daemon(runner)

    async def run(self) -> None:
        """Work until ``end``."""
        reason = "start"
        background = [asyncio.create_task(self._watch_settings()), asyncio.create_task(self._guard())]
        try:
            while True:
                await self._metrics.open(self._daemon.runner.settings.host.metrics.address, self._daemon.runner.metrics)
                await self._api.open(self._daemon.runner.settings, partial(measure, self._daemon.runner))
                watching = asyncio.create_task(_watch(self._daemon))
                await self._daemon.run(reason)
                self._daemon.stop.set()
                await watching
                if self._lost is not None:
                    raise self._lost
                if self._next is None or self._ended:
                    return
                ended, self._daemon, self._next, reason = self._daemon, self._make_daemon(self._next), None, "settings"
                ended.wakes.transfer_to(self._daemon.wakes)
        finally:
            for task in background:
                task.cancel()
            await self._metrics.close()
            await self._api.close()

    async def _guard(self) -> None:
        while not self._is_state_lost():
            await asyncio.sleep(STATE_CHECK_SECONDS)

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

    def _make_daemon(self, runner: Runner) -> Daemon:
        return Daemon(runner, self._clock, SchedulerTimers(), self._notifier, self._over, self._is_state_lost)

    async def _watch_settings(self) -> None:
        while self._reload is not None:
            await asyncio.sleep(SETTINGS_POLL_SECONDS)
            if self._reload.due():
                self._asked = True
                self.wake(STATUS, "settings")

    def _over(self) -> bool:
        """Whether a loop with new settings replaces this one; called between two runs."""
        if not self._asked or self._reload is None:
            return False
        self._asked = False
        self._next = self._reload.try_reload(self._runner)
        if self._next is None:
            return False
        self._notifier.reloading()
        logs.configure(self._next.settings.log.format, self._next.settings.log.level)
        tracing.configure(self._next.settings.traces, self._next.settings.org)
        return True

    def _runner(self, settings: Settings) -> Runner:
        return Runner(settings, self._daemon.runner.records, self._clock, self._engines)


async def serve(settings: Settings, engines: Mapping[str, MakeEngine] = ENGINES, file: Path | None = None) -> None:
    """Run the daemon until a signal ends it; reload ``file``, the source of ``settings``, when it changes.

    Raises LockedError if another daemon uses the state directory, StateLostError if that is deleted meanwhile, and
    UsageError for a key that cannot sign.
    """
    check_signing_key(settings)
    fix_mmap_threshold()
    clock = SystemClock(settings.state, writes=True)
    with StateLock(settings.state) as lock:
        records = Records.open(settings.state / FILE, clock_now=clock.now, expiry=clock.expiry)
        socket = WakeSocket(settings.state)
        try:
            reload = Reload(file, settings, records) if file is not None else None
            service = Service(Runner(settings, records, clock, engines), clock, engines, reload, lock)
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(_on_loop_error)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, service.end)
            loop.add_signal_handler(signal.SIGHUP, service.on_sighup)
            socket.open(service.wake)
            tracing.configure(settings.traces, settings.org)
            log().info("started", state=str(settings.state), sources=[source.name for source in settings.sources])
            await service.run()
        finally:
            socket.close()
            records.close()
            tracing.close()
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


async def _watch(daemon: Daemon) -> None:
    """Wake the loop when a ref of a local source moves; polling continues."""
    owners: dict[Path, list[str]] = {}
    for name, line in daemon.runner.lines.items():
        try:
            if line.source.local:
                owners.setdefault(line.source.repository.commondir, []).append(name)
        except SourceError as error:
            log().warning("watch_failed", source=name, message=str(error))
    status = sorted({f"refs/heads/{source.status.branch}" for source in daemon.runner.settings.sources})

    def moved(path: Path) -> None:
        for name in owners[path]:
            daemon.wakes.add(name, "ref")

    if owners:
        with contained("watching refs"):  # polling continues
            await watch_refs(sorted(owners), daemon.stop, moved, status)
