"""The daemon's loop: wake-ups in, runs out, one at a time; status, retries and requests between them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from reconciler.clock import Clock, SystemClock, Timers
from reconciler.daemon.lock import StateLock
from reconciler.daemon.notify import Notifier, Watchdog
from reconciler.daemon.timers import SchedulerTimers
from reconciler.daemon.wake import Wakes, WakeSocket
from reconciler.daemon.watch import watch_refs
from reconciler.engines.registry import ENGINES, MakeEngine
from reconciler.errors import RecordsError, SourceError
from reconciler.logs import log
from reconciler.pipeline.report import Report, packed
from reconciler.pipeline.runner import Runner
from reconciler.records.requests import Request
from reconciler.records.store import FILE, Records
from reconciler.settings import Settings

JITTER = 0.1
"""Polls come up to this part of their interval later, so that many hosts do not ask at once."""
RECORDS_RETRY = 5.0
"""Seconds until the records are tried again after they could not be written (a full disk)."""


class Daemon:
    """One process's work on one state directory, whose lock it holds."""

    def __init__(self, runner: Runner, clock: Clock, timers: Timers, notifier: Notifier) -> None:
        self.runner = runner
        self.clock = clock
        self.timers = timers
        self.notifier = notifier
        self.watchdog = Watchdog(notifier, clock)
        self.wakes = Wakes()
        self.stop = asyncio.Event()
        self._replay = True
        self._last: dict[str, str] = {}

    async def follow(self) -> None:
        """Work until ``stop`` is set; the step in flight ends, or stays journaled."""
        for source in self.runner.settings.sources:
            wake = partial(self.wakes.add, source.name, "poll")
            self.timers.every(f"poll {source.name}", source.interval, source.interval * JITTER, wake)
        if self.watchdog.interval:
            self.timers.every("watchdog", self.watchdog.interval, 0.0, self.watchdog.beat)
        self.timers.start()
        self.wakes.add(None, "start")
        self.notifier.ready(f"following {', '.join(self.runner.lines)}")
        stopped = asyncio.create_task(self.stop.wait())
        while not self.stop.is_set():
            self.watchdog.rest()
            taken = asyncio.create_task(self.wakes.take())
            await asyncio.wait({taken, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if taken.done():
                await self._work(taken.result())
            else:
                taken.cancel()
        self.notifier.stopping()
        self.timers.stop()
        self._guarded(self._flush, force=True)

    async def _work(self, wakes: Mapping[str | None, set[str]]) -> None:
        """One round: every source that was woken, then what operators asked for, then status and timers."""
        self.watchdog.progress()
        try:
            if self._replay:
                await self._recover()
            for name in self._woken(wakes):
                reasons = wakes.get(name, set()) | wakes.get(None, set())
                await self._run(name, ",".join(sorted(reasons)))
            for request in self.runner.records.requests.open():
                await self._answer(request)
            self._flush()
            self._next_attempt()
        except RecordsError as error:
            self._broken(error)

    def _woken(self, wakes: Mapping[str | None, set[str]]) -> Iterable[str]:
        return [name for name in self.runner.lines if (name in wakes or None in wakes) and not self.stop.is_set()]

    async def _recover(self) -> None:
        """Finish what a crash, or records that could not be written, left in the journal."""
        replayed = await self.runner.replay()
        self._replay = False
        if replayed:
            log().info("replayed", steps=replayed)

    async def _run(self, name: str, reason: str) -> Report:
        began = self.clock.monotonic()
        self.notifier.status(f"{name}: running ({reason})")
        report = await self.runner.run(name, reason, self._preempted)
        self.watchdog.progress()
        self._tell(report, reason, self.clock.monotonic() - began)
        self.notifier.status(f"{name}: {report.outcome} {report.revision}".rstrip())
        return report

    def _preempted(self) -> bool:
        """Whether a run should begin nothing new: somebody woke the loop for another, or it is to stop."""
        self.watchdog.progress()
        return self.stop.is_set() or self.wakes.waiting()

    def _tell(self, report: Report, reason: str, seconds: float) -> None:
        """One line a run; a run that changed nothing and ends like the one before is told at level debug."""
        mark = f"{report.outcome} {report.revision} {report.reason} {report.message} {report.counts}"
        repeated = mark == self._last.get(report.source) or report.outcome == "unchanged"
        self._last[report.source] = mark
        level = "debug" if repeated else "info" if report.good or report.outcome == "waiting" else "warning"
        facts = {"reason": reason, "outcome": report.outcome, "revision": report.revision, **report.counts}
        if report.outcome in ("refused", "unreadable"):
            facts["message"] = report.message
        if report.held:
            facts["approve"] = report.held
        getattr(log(), level)("run", source=report.source, seconds=round(seconds, 4), **facts)

    async def _answer(self, request: Request) -> None:
        """Do what an operator asked for and write the answer down."""
        self.runner.records.requests.take(request.id)
        reports = [await self._run(name, request.kind) for name in self.runner.lines]
        self._flush(force=True)
        self.runner.records.requests.done(request.id, packed(reports))

    def _flush(self, *, force: bool = False) -> None:
        """Write status that is due, and come back when more is."""
        for name, writer in self.runner.writers.items():
            if self.runner.flush(name, force=force):
                log().debug("status", source=name)
            due = writer.next_due()
            if due is not None:
                self.timers.after(f"status {name}", max(due, 0.05), partial(self._guarded, self._flush))

    def _next_attempt(self) -> None:
        """Come back when a failed step is owed another try; a newer revision does not wait for that."""
        due = self.runner.next_attempt()
        if due is not None:
            wait = max(0.05, due - self.clock.now())
            self.timers.after("retry", wait, partial(self.wakes.add, None, "retry"))

    def _guarded(self, call: Callable[..., None], *, force: bool = False) -> None:
        try:
            call(force=force)
        except RecordsError as error:
            self._broken(error)

    def _broken(self, error: RecordsError) -> None:
        """The records cannot be written: nothing goes on until they can, and what was in flight is done again."""
        self._replay = True
        log().error("records", reason=error.reason, message=str(error))
        self.notifier.status(f"waiting: {error}")
        self.timers.after("records", RECORDS_RETRY, partial(self.wakes.add, None, "records"))


async def serve(settings: Settings, engines: Mapping[str, MakeEngine] = ENGINES) -> None:
    """Run the daemon until a signal ends it. Raises LockedError where another one works on the state directory."""
    clock, timers = SystemClock(), SchedulerTimers()
    with StateLock(settings.state):
        records = Records.open(settings.state / FILE)
        socket = WakeSocket(settings.state)
        try:
            daemon = Daemon(Runner(settings, records, clock, engines), clock, timers, Notifier())
            _listen(daemon)
            socket.open(daemon.wakes.add)
            watching = asyncio.create_task(_watch(daemon))
            log().info("started", state=str(settings.state), sources=[source.name for source in settings.sources])
            await daemon.follow()
            await watching
        finally:
            socket.close()
            records.close()
        log().info("stopped")


def _listen(daemon: Daemon) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop.set)
    loop.add_signal_handler(signal.SIGHUP, daemon.wakes.add, None, "SIGHUP")


async def _watch(daemon: Daemon) -> None:
    """Wake the loop when a ref of a local source moves; polling goes on besides."""
    owners: dict[Path, list[str]] = {}
    for name, line in daemon.runner.lines.items():
        try:
            if line.source.local:
                owners.setdefault(line.source.repository.commondir, []).append(name)
        except SourceError as error:
            log().warning("unwatched", source=name, message=str(error))
    status = sorted({f"refs/heads/{source.status.branch}" for source in daemon.runner.settings.sources})

    def moved(path: Path) -> None:
        for name in owners[path]:
            daemon.wakes.add(name, "ref")

    if owners:
        await watch_refs(sorted(owners), daemon.stop, moved, status)
