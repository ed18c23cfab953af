"""The daemon's loop: wake-ups in, runs out, one at a time; status, retries and requests between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from reconciler.bugs import internal_error
from reconciler.clock import HOLD, Clock, Timers
from reconciler.daemon.debounce import Debounce, watch_engine
from reconciler.daemon.disk import DiskMonitor
from reconciler.daemon.notifications import Notifications
from reconciler.daemon.polling import BackgroundFetch, SourceBackoff
from reconciler.daemon.request_queue import RequestQueue
from reconciler.daemon.run_log import RunLog
from reconciler.daemon.schedule_timer import ScheduleTimer
from reconciler.daemon.secret_monitor import HostSecretMonitor
from reconciler.daemon.systemd import SystemdNotifier, Watchdog
from reconciler.daemon.upkeep import Upkeep
from reconciler.daemon.wake import (
    API_CERTIFICATE,
    BACKUP,
    CERTIFICATES,
    DRIFT,
    LOCATIONS_ALONE,
    NOTICED,
    REFRESH,
    STATUS,
    WakeQueue,
)
from reconciler.engines.protocol import SupportsWatch
from reconciler.errors import RecordsError
from reconciler.logs import log
from reconciler.pipeline.report import Report
from reconciler.pipeline.runner import Runner
from reconciler.pipeline.saved_plan import SavedPlan
from reconciler.status.backup_monitor import BackupMonitor
from reconciler.status.certificate_monitor import CertificateMonitor

JITTER = 0.1
"""Each poll is delayed by up to this share of its interval, so that many hosts do not fetch at once."""
SIGHUP = "SIGHUP"
"""A reason that makes the engines reread their files as ``REFRESH`` does, and runs every source too."""
BACKGROUND = frozenset({"poll", "ref", "apply", REFRESH})
"""Reasons that cause a poll, not a run; the request of `reconciler apply` was answered before its wake-up."""
PAUSE = 0.25
"""Seconds from a change that an engine noticed to the check, so that many changes cause one check."""
STATE_CHECK_SECONDS = 1.0
"""Seconds between checks that the state directory still exists; each round checks too."""
OVERDUE = 5.0
"""Seconds until the next round if a step's attempt was due, but not made, in the last one."""


class Daemon:
    """One process's work on one state directory, whose lock it holds."""

    def __init__(
        self,
        runner: Runner,
        clock: Clock,
        timers: Timers,
        notifier: SystemdNotifier,
        over: Callable[[], bool] = lambda: False,
        state_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        self.runner = runner
        self.clock = clock
        self.timers = timers
        self.notifier = notifier
        self._should_hand_over = over
        self._is_state_lost = state_lost
        # A fetch reports no progress until it ends or meets its deadline.
        slowest = max((source.timeout for source in runner.settings.sources if not source.local), default=0.0)
        self.watchdog = Watchdog(notifier, clock, notifier.watchdog_seconds + slowest)
        self.wakes = WakeQueue()
        views = {name: pipeline.view for name, pipeline in runner.pipelines.items()}
        self._host = HostSecretMonitor(runner.records, views, runner.secret_filler)
        self.stop = asyncio.Event()
        self._replay = True
        self._unread = set(runner.pipelines)
        self._run_log = RunLog(clock)
        self._backoff = SourceBackoff(clock.monotonic, runner.settings.retry.cap)
        self._running: tuple[str, str] | None = None
        self._fetch = BackgroundFetch()
        self._watching: list[asyncio.Task[None]] = []
        self._upkeep = Upkeep(runner)
        self._disk = DiskMonitor(runner, timers, self.wakes)
        self._requests = RequestQueue(runner, self._run_for_request, partial(self._flush, force=True))
        self._notifications = Notifications(runner, clock)
        self._monitors: dict[str, BackupMonitor | CertificateMonitor] = {
            BACKUP: BackupMonitor(runner.records, runner.settings, clock),
            API_CERTIFICATE: CertificateMonitor(runner.records, runner.settings, clock),
        }
        self._schedules = ScheduleTimer(runner, clock, timers, self.wakes)

    async def run(self, reason: str = "start") -> None:
        """Work until ``stop`` is set (the step in flight ends, or stays journaled) or ``over`` is true between rounds.

        The first round handles every source, with ``reason`` as the cause.
        """
        for source in self.runner.settings.sources:
            self.timers.every(
                f"poll {source.name}", source.interval, source.interval * JITTER, partial(self._poll, source.name)
            )
        self._start_watchers()
        self._notifications.open()
        self.timers.every("state", STATE_CHECK_SECONDS, 0.0, self._check_state)
        if self.watchdog.interval:
            self.timers.every("watchdog", self.watchdog.interval, 0.0, self.watchdog.ping)
        self.timers.start()
        self.wakes.add(None, reason)
        self.notifier.ready(f"following {', '.join(self.runner.pipelines)}")
        stopped = asyncio.create_task(self.stop.wait())
        while not self.stop.is_set():
            self.watchdog.idle()
            taken = asyncio.create_task(self.wakes.take())
            await asyncio.wait({taken, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not taken.done():
                taken.cancel()
            elif self._is_state_lost() or self._should_hand_over():
                break
            else:
                await self._run_round(taken.result())
        if self.stop.is_set():
            self.notifier.stopping()
        stopped.cancel()
        self.timers.stop()
        await self._fetch.wait()
        for task in self._watching:
            task.cancel()
        await self.runner.close()
        await self._notifications.close()
        await self._upkeep.finish()
        try:
            await self._flush(force=True)
        except RecordsError as error:
            log().error("records", reason=error.reason, message=str(error))

    async def _run_round(self, wakes: Mapping[str | None, set[str]]) -> None:
        """Run one round: requests for runs, every woken source, requests for plans, then status and timers."""
        self.watchdog.progress()
        began = self.clock.now()
        try:
            self._disk.check()
            if self._replay:
                with self._contain_bug("replay"):
                    await self._recover()
            if CERTIFICATES in wakes or wakes.get(None, frozenset()) & {REFRESH, SIGHUP}:
                with self._contain_bug("refresh"):
                    self.runner.refresh_engines()
            with self._contain_bug("requests"):
                await self._requests.answer_runs()
            for name in self._woken(wakes):
                with self._contain_bug(f"source {name}"):
                    await self._reconcile_source(name, wakes.get(name, set()) | wakes.get(None, set()))
                self._unread.discard(name)
            if not self._unread:
                with self._contain_bug("schedules"):
                    self.runner.begin_schedules()
            with self._contain_bug("requests"):
                await self._requests.answer_plans(self.watchdog.progress)
            with self._contain_bug("commands"):
                await self.runner.commands.advance(partial(self.wakes.add, DRIFT, "command"))
            with self._contain_bug("schedules"):
                self._schedules.record_due()
            self._check_daemon(wakes)
            for name in sorted(self.runner.sources_to_requeue):
                self.wakes.add(name, "poll")
            if reasons := wakes.get(DRIFT, set()) | wakes.get(None, set()) & {"sync"}:
                with self._contain_bug("drift"):
                    await self._check_drift(reasons)
            await self._flush()
            self._upkeep.start()  # after the status, which must not wait for it
            with self._contain_bug("retry"):
                self._next_attempt(began)
        except RecordsError as error:
            self._on_records_error(error)

    def _check_daemon(self, wakes: Mapping[str | None, set[str]]) -> None:
        """Report what is wrong with the daemon itself."""
        for name, monitor in self._monitors.items():
            if name in wakes or None in wakes:
                with self._contain_bug(name):
                    monitor.check()

    @contextmanager
    def _contain_bug(self, part: str) -> Iterator[None]:
        """Turn a bug in one part of a round into an event and a log line, so that the other parts go on."""
        try:
            yield
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug in one place never takes down another
            self.runner.conditions.append_bug(part, internal_error(error, part))

    def _start_watchers(self) -> None:
        """Check the locations, and this host, at intervals and whenever an engine notices a change."""
        for name, self_check in self._monitors.items():
            if self_check.interval:
                self.timers.every(name, self_check.interval, 0.0, partial(self.wakes.add, name, "timer"))
        every = self.runner.settings.drift.interval
        if every:
            self.timers.every("drift", every, every * JITTER, partial(self.wakes.add, DRIFT, "drift"))
            self.wakes.add(DRIFT, "start")
        monitor = self.runner.drift_monitor
        noticed = Debounce(self.timers, PAUSE, partial(self.wakes.add, DRIFT, NOTICED))
        self._watching = [
            asyncio.create_task(watch_engine(engine, partial(monitor.notice, location), noticed))
            for location, engine in monitor.engines.items()
            if engine.can_drift and isinstance(engine, SupportsWatch)
        ]

    async def _check_drift(self, reasons: set[str]) -> None:
        """Check the locations, and for most ``reasons`` the secrets on this host; a difference causes a run."""
        monitor = self.runner.drift_monitor
        for name in sorted(await (monitor.check_noticed() if reasons == {NOTICED} else monitor.check())):
            self.wakes.add(name, "drift")
        if self.runner.drift_monitor.health_changed:
            for name in self.runner.sources_to_repoll():
                self.wakes.add(name, "poll")
        for name in () if reasons <= LOCATIONS_ALONE else sorted(await asyncio.to_thread(self._host.check)):
            self.wakes.add(name, "secret")
        self._run_log.unseen(self.runner.drift_monitor.unreachable)
        self.watchdog.progress()

    def _woken(self, wakes: Mapping[str | None, set[str]]) -> Iterable[str]:
        return [name for name in self.runner.pipelines if (name in wakes or None in wakes) and not self.stop.is_set()]

    async def _recover(self) -> None:
        """Replay the steps that a crash, or a failed write of the records, left in the journal."""
        replayed = await self.runner.open()
        self._replay = False
        if replayed:
            log().info("journal_replayed", steps=replayed)

    def _check_state(self) -> None:
        """End the loop if its state directory is lost."""
        self._is_state_lost()

    def _poll(self, name: str) -> None:
        """Wake a source. During its run, a fetch finds out whether a newer revision pre-empts the run."""
        if self._backoff.is_backing_off(name):
            return
        self.wakes.add(name, "poll")
        source = self.runner.pipelines[name].source
        if self._running and self._running[0] == name and not source.local:
            self._fetch.start(source)

    async def _reconcile_source(self, name: str, reasons: set[str]) -> None:
        """Run the source for an operator, a start or a retry; for background reasons only if the source changed."""
        self.notifier.status(f"{name}: reading ({', '.join(sorted(reasons))})")
        began = self.clock.monotonic()
        await self._fetch.wait()
        if reasons <= BACKGROUND:
            report = await self.runner.poll(name, partial(self._is_preempted, name))
        else:
            report = await self._run(name, ",".join(sorted(reasons)))
        self._running = None
        self.watchdog.progress()
        if report is None:
            self._backoff.record_answer(name)
            self._run_log.idle(name)
        else:
            self._log_report(report, ",".join(sorted(reasons)), self.clock.monotonic() - began)
            self.notifier.status(f"{name}: {report.outcome} {report.revision}".rstrip())

    async def _run(self, name: str, reason: str, reviewed: SavedPlan | None = None) -> Report:
        await self._fetch.wait()
        try:
            return await self.runner.run(name, reason, partial(self._is_preempted, name), reviewed)
        finally:
            self._running = None

    def _is_preempted(self, name: str, revision: str) -> bool:
        """Whether the run of ``name`` at ``revision`` should start no further step."""
        self.watchdog.progress()
        self._running = (name, revision)
        return self.stop.is_set() or (self.wakes.waiting() and self.runner.has_newer_revision(name, revision))

    def _log_report(self, report: Report, reason: str, seconds: float) -> None:
        source = self.runner.pipelines[report.source].source
        if report.outcome == "unreadable" and not source.local:
            self._backoff.record_failure(report.source, source.settings.interval)
        else:
            self._backoff.record_answer(report.source)
        self._run_log.run(report, reason, seconds)

    async def _run_for_request(self, name: str, reason: str, reviewed: SavedPlan | None) -> Report:
        began = self.clock.monotonic()
        report = await self._run(name, reason, reviewed)
        self._log_report(report, reason, self.clock.monotonic() - began)
        return report

    async def _flush(self, *, force: bool = False) -> None:
        """Write the status that is due, and set timers for the rest."""
        for name, writer in () if self._is_state_lost() else self.runner.writers.items():
            with self._contain_bug(f"status {name}"):
                due = writer.next_due()
                if due is not None and (force or due <= 0):
                    await asyncio.to_thread(self.runner.flush, name, force=force)
                    self._run_log.status(self.runner.records, name)
                    due = writer.next_due()
                if due is not None:
                    self.timers.after(f"status {name}", max(due, 0.05), partial(self.wakes.add, STATUS, "status"))

    def _next_attempt(self, began: float) -> None:
        """Set the timer for the next attempt of a failed step; a newer revision does not wait for it.

        An attempt that was due before the round ``began`` was not possible: its source is refused or cannot be read.
        """
        left = self.runner.next_end()
        if left is not None:
            # After the clock was set, the end comes earlier or later than it seems.
            self.timers.after("resume", max(0.05, min(left, HOLD)), partial(self.wakes.add, None, "resume"))
        due = self.runner.next_attempt()
        if due is not None:
            # A wait longer than the cap means that the clock was set back since.
            left = min(due - self.clock.now(), self.runner.settings.retry.cap)
            wait = max(0.05, left) if due > began else OVERDUE
            self.timers.after("retry", wait, partial(self.wakes.add, None, "retry"))

    def _on_records_error(self, error: RecordsError) -> None:
        """Pause until the records can be written again; then the steps in flight are replayed."""
        self._replay = True
        log().error("records", reason=error.reason, message=str(error))
        self.notifier.status(f"waiting: {error}")
        self.timers.after("records", self._disk.retry_seconds(), partial(self.wakes.add, None, "records"))
