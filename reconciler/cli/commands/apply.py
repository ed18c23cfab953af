"""`reconciler apply`: run every source once and exit."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, NamedTuple

import click

from reconciler.cli.options import Duration, read_settings, settings_option
from reconciler.cli.output.printing import echo_text, note_at_interrupt, note_uncommitted, print_error
from reconciler.cli.privileges import become_owner
from reconciler.errors import DiskFull, LockedError

if TYPE_CHECKING:
    from reconciler.engines.protocol import ReplicaCounts
    from reconciler.pipeline.report import Report
    from reconciler.pipeline.runner import Runner
    from reconciler.pipeline.saved_plan import SavedPlan
    from reconciler.records.store import Records
    from reconciler.settings import Settings

    Plans = dict[str, SavedPlan] | None

GRACE_SECONDS = 5.0
"""Seconds beyond --timeout in which a daemon may still finish a run."""
FINISH_SECONDS = 10.0
"""Seconds that a run without a daemon has to start the replicas that it has created."""
FINISH_POLL_SECONDS = 0.02
SOON = 0.1
"""Seconds between checks of resources that are not healthy yet."""
MAX_RUNS = 100
"""Limit of the daemon's runs whose results are added up."""
LATER = 2.0
"""Longest wait in seconds before another run where nothing has changed; the wait doubles each time."""

_DAEMON_GOES_ON = "the daemon goes on with it; to see how far it is: reconciler status --wait"
_NEXT_RUN_GOES_ON = "the next run completes what this one began: reconciler apply"


class RunOptions(NamedTuple):
    """How to run: until all is well or the ``deadline`` (monotonic), only the ``plans``, and over another's status."""

    wait: bool
    deadline: float
    plans: Plans
    takes_status: bool


@click.command(epilog="Example: reconciler apply --wait")
@click.option("--wait", is_flag=True, help="Wait until everything is healthy, or waiting cannot help.")
@click.option(
    "--timeout", type=Duration(), default=300.0, metavar="TIME", help="How long to wait, such as 20s; default 5m."
)
@click.option(
    "--plan", "plan_file", type=click.Path(path_type=Path), metavar="FILE", help="Apply only this saved plan."
)
@click.option("--take-status-branch", "takes", is_flag=True, help="Take it over from a daemon that is gone.")
@settings_option
def command(settings_file: Path, wait: bool, timeout: float, plan_file: Path | None, takes: bool) -> int:
    """Run every source once, write the status branch, and exit.

    --plan runs only the sources of a plan that `reconciler plan --out FILE` saved, and only if a run would still do
    what that plan shows; else it reports what changed. During --wait, a terminal shows the progress.

    If a daemon is running, it makes the run. Without one, the command starts replicas on this host before it ends;
    replicas that take longer, and all probes and restarts, need a daemon. Exits with 1 if anything was refused, failed
    or waits, unless for replicas that a daemon ends, if --wait ran out of time, or if only a daemon can start the rest.
    """
    from reconciler.cli.options import read_records
    from reconciler.cli.output.wait_display import show_unhealthy, unhealthy_lines
    from reconciler.daemon.lock import StateLock, find_lock_holder

    settings = read_settings(settings_file)
    plans = _load_plans(settings, plan_file)
    become_owner(settings.state)
    begun = time.monotonic()
    deadline = begun + timeout
    lock = StateLock(settings.state)
    counts, is_continued = None, False
    try:
        lock.acquire("reconciler apply")
    except LockedError:
        if find_lock_holder(settings.state) is None:
            raise  # it works on a state directory that is no longer there
        with note_at_interrupt(_DAEMON_GOES_ON), show_unhealthy(settings, wait):
            reports = _run_in_daemon(settings, RunOptions(wait, deadline, plans, takes))
        is_continued = not wait
    else:
        import asyncio

        try:
            with note_at_interrupt(_NEXT_RUN_GOES_ON), show_unhealthy(settings, wait):
                reports, counts = asyncio.run(_run_here(settings, RunOptions(wait, deadline, plans, takes)))
        finally:
            lock.release()
    code = _print_reports(settings, reports, is_continued=is_continued)
    note_uncommitted(settings.sources)
    if counts is not None and counts.wanted:
        code = max(code, _report_replicas(counts))
    with closing(read_records(settings)) as records:
        _warn_about_status(records, reports)
        if wait and _worth_waiting(records, reports) is not None:
            print_error(f"not everything is healthy after {min(timeout, round(time.monotonic() - begun, 1)):g} s:")
            _list_unhealthy(unhealthy_lines(records))
            return 1
    return code


def _list_unhealthy(lines: list[str]) -> None:
    """Print ``lines``, and where the last words of those stand whose program ended."""
    from reconciler.queries.summary import CRASH

    echo_text(indent("\n".join(lines), "  "), err=True)
    if any(CRASH in line for line in lines):
        echo_text("  what they wrote last: reconciler status", err=True)


def _load_plans(settings: Settings, plan_file: Path | None) -> Plans:
    """The saved plans by source; None without --plan."""
    if plan_file is None:
        return None
    from reconciler.cli.options import select_sources
    from reconciler.pipeline.saved_plan import load_saved_plans

    plans = load_saved_plans(plan_file)
    for name in plans:
        select_sources(settings, name)
    return plans


def _report_replicas(counts: ReplicaCounts) -> int:
    """Warn about the work that needs a daemon; return the exit code."""
    others = "start the others, or to " if counts.running < counts.wanted else ""
    message = f"{counts.running} of {counts.wanted} replicas run; there is no daemon to {others}probe, restart or scale"
    echo_text(f"warning: {message} them: reconciler run", err=True)
    return int(counts.running < counts.wanted)


async def _finish_replicas(runner: Runner) -> ReplicaCounts:
    """Let the engines of this host finish starting replicas, for a bounded time; return the counts."""
    import asyncio

    deadline = time.monotonic() + FINISH_SECONDS
    while (counts := runner.replica_counts()).busy and time.monotonic() < deadline:
        await asyncio.sleep(FINISH_POLL_SECONDS)
    return counts


async def _run_here(settings: Settings, options: RunOptions) -> tuple[list[Report], ReplicaCounts]:
    import asyncio

    from reconciler.clock import SystemClock
    from reconciler.pipeline.report import merge_reports
    from reconciler.pipeline.runner import Runner
    from reconciler.records.store import FILE, Records

    clock = SystemClock(settings.state, writes=True)
    records = Records.open(settings.state / FILE, expiry=clock.expiry)
    runner = Runner(settings, records, clock)
    if options.takes_status:
        runner.take_status_branches()
    try:
        records.reserve.restore()
        try:
            reports = await _first_round(runner, options.plans)
        except DiskFull:
            if not records.reserve.was_released():
                raise
            # The released reserve leaves room for deletes.
            reports = await _first_round(runner, options.plans)
        turns = RunPacer(records)
        while options.wait and _should_continue(records, reports, options.deadline):
            await asyncio.sleep(SOON)
            drifted = await runner.drift_monitor.check()
            if turns.due(sooner=bool(drifted) or runner.drift_monitor.health_changed):
                reports = merge_reports(reports, await _run_round(runner))
        counts = await _finish_replicas(runner)
        await runner.drift_monitor.check()
        _write_status(runner)
        if records.documents.needs_sweep():
            records.documents.sweep()
        return reports, counts
    finally:
        await runner.close()
        records.close()


async def _first_round(runner: Runner, plans: Plans) -> list[Report]:
    await runner.open()
    await runner.drift_monitor.check()
    reports = await _run_round(runner, plans)
    runner.begin_schedules()
    return reports


async def _run_round(runner: Runner, plans: Plans = None) -> list[Report]:
    from reconciler.pipeline.report import merge_reports

    if plans is None:
        reports = [await runner.run(name, "apply") for name in runner.pipelines]
    else:
        reports = [await runner.run(name, "apply", reviewed=plan) for name, plan in plans.items()]
    again = [await runner.run(name, "apply") for name in sorted(runner.sources_to_requeue)]
    await runner.commands.advance()
    _write_status(runner)
    return merge_reports(reports, again)


def _write_status(runner: Runner) -> None:
    for name in runner.pipelines:
        runner.flush(name, force=True)


def _worth_waiting(records: Records, reports: list[Report]) -> float | None:
    """When to check again, if time alone can help; None if it cannot."""
    from reconciler.status.progress import recheck_at

    if any(report.outcome in ("refused", "unreadable") for report in reports):
        return None
    return recheck_at(records)


def _should_continue(records: Records, reports: list[Report], deadline: float) -> bool:
    """Whether to keep waiting: it can help, and there is time left."""
    return _worth_waiting(records, reports) is not None and time.monotonic() < deadline


class RunPacer:
    """Spaces the runs of ``--wait``."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._pause = SOON
        self._next = time.monotonic() + self._pause

    def due(self, *, sooner: bool = False) -> bool:
        """Whether to run again now; ``sooner``: something has changed. A failed step has its own schedule."""
        from reconciler.status.progress import recheck_at

        now, motion = time.monotonic(), recheck_at(self._records)
        if motion is not None and not sooner and (now < self._next or motion > time.time()):
            return False
        self._pause = min(2 * self._pause, LATER)
        self._next = now + self._pause
        return True


def _run_in_daemon(settings: Settings, options: RunOptions) -> list[Report]:
    """Request the run from the daemon, and more while that helps; the daemon's own runs meanwhile count too."""
    from reconciler.cli.daemon_requests import request_run
    from reconciler.pipeline.report import with_history
    from reconciler.records.store import FILE, Records

    wait, deadline = options.wait, options.deadline

    def run(plans: Plans = None, *, takes_status: bool = False) -> list[Report]:
        seconds = deadline + GRACE_SECONDS - time.monotonic()
        return request_run(records, settings.state, seconds, plans, takes_status=takes_status)

    with closing(Records.open(settings.state / FILE)) as records:
        mark = max((run.id for run in records.runs.list(1)), default=0)
        reports, turns, again = run(options.plans, takes_status=options.takes_status), RunPacer(records), True
        while wait and time.monotonic() < deadline:
            if _should_continue(records, reports, deadline):
                time.sleep(SOON)
                if turns.due():
                    reports, again = run(), True
                continue
            # What the rest waits for may have become healthy since the last run, and the daemon may have done what
            # failed: one more run shows it.
            if not again or all(report.outcome not in ("failed", "waiting") for report in reports):
                break
            reports, again = run(), False
        return [with_history(report, records.runs.list(MAX_RUNS, report.source), mark) for report in reports]


def _warn_about_status(records: Records, reports: list[Report]) -> None:
    """Warn about status that could not be written, which does not make a run fail."""
    from reconciler.reasons import ConditionType

    for report in reports:
        for condition in records.conditions.get(report.source):
            is_repeated = report.outcome == "unreadable" and condition.message == report.message
            if condition.type == ConditionType.STATUS_PUSHED and not condition.status and not is_repeated:
                echo_text(f"warning: {report.source}: the status is not written: {condition.message}", err=True)


def _print_reports(settings: Settings, reports: list[Report], *, is_continued: bool) -> int:
    """Print what was done; returns the exit code, where a daemon may end what ends by itself (``is_continued``)."""
    from reconciler.cli.output.printing import print_findings
    from reconciler.pipeline.report import format_report_lines
    from reconciler.render.excerpt import Excerpts
    from reconciler.render.findings import explain_hint
    from reconciler.source.file_reader import reader_of

    for report in reports:
        if report.findings:
            commit = report.revision.rpartition(":")[2]
            print_findings(report.findings, Excerpts(reader_of(settings, report.source, commit)))
        for line in format_report_lines(report):
            echo_text(line)
    echo_text(explain_hint(finding for report in reports for finding in report.findings), nl=False)
    latest = {report.source: report for report in reports}
    done = (report.good or (is_continued and report.ends_by_itself) for report in latest.values())
    return int(not all(done))
