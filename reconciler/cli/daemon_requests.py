"""What commands ask the running daemon for: a row in the records, a wake-up, and the answer in the same row."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reconciler.cli.options import operator
from reconciler.daemon.lock import holder
from reconciler.daemon.wake import REQUESTS, wake
from reconciler.errors import RecordsError, RefusedError
from reconciler.records.store import FILE, Records

if TYPE_CHECKING:
    from reconciler.pipeline.report import Report
    from reconciler.pipeline.saved_plan import SavedPlan
    from reconciler.render.plan.rendered import PlanRequest, RenderedPlan

PATIENCE_SECONDS = 0.5
"""How long a command waits for the daemon to begin what the command can do by itself."""
WORK_SECONDS = 60.0
"""How long it waits for the end of that."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.001, 0.02


def request_run(records: Records, state: Path, seconds: float, plans: dict[str, SavedPlan] | None) -> list[Report]:
    """Let the daemon run every source, or only those of ``plans`` and only as planned; return the reports.

    Raises RefusedError after ``seconds``, or if the daemon ends.
    """
    from reconciler.pipeline.report import decode_reports

    wanted = {} if plans is None else {"plans": [msgspec.to_builtins(plan) for plan in plans.values()]}
    number = records.requests.add("apply", wanted, operator())
    wake(state, None, "apply")
    answer = _wait(records, state, number, seconds, seconds)
    if answer is None and holder(state) is None:
        raise RefusedError("the daemon ended before it finished the run; try again")
    if answer is None:
        raise RefusedError("the daemon did not finish the run in time; see its log and `reconciler events`")
    return decode_reports(answer)


def request_plans(state: Path, wanted: PlanRequest) -> list[RenderedPlan] | None:
    """Let the daemon plan, which has everything in memory; None if the command has to plan by itself."""
    if holder(state) is None or not os.access(state / FILE, os.W_OK):
        return None
    try:
        # Read-only first: it refuses records of an earlier version, which a plan must not bring up to date.
        Records.open(state / FILE, read_only=True).close()
        with closing(Records.open(state / FILE)) as records:
            return _plans(records, state, wanted)
    except RecordsError:
        return None  # such as a full disk: reading may still be possible


def _plans(records: Records, state: Path, wanted: PlanRequest) -> list[RenderedPlan] | None:
    from reconciler.render.plan.rendered import PlanAnswer

    number = records.requests.add("plan", msgspec.to_builtins(wanted), operator())
    try:
        answer = (
            _wait(records, state, number, PATIENCE_SECONDS, WORK_SECONDS) if wake(state, REQUESTS, "plan") else None
        )
    finally:
        records.requests.remove(number)
    return msgspec.convert(answer, PlanAnswer).plans if answer is not None else None


def _wait(records: Records, state: Path, number: int, patience: float, most: float) -> dict[str, Any] | None:
    """The answer to a request; None if it is not begun within ``patience`` or not answered within ``most`` seconds, or
    if the daemon ends.
    """
    begun, pause = time.monotonic(), FIRST_PAUSE_SECONDS
    while True:
        request = records.requests.get(number)
        if request is not None and request.result is not None:
            return request.result
        is_begun = request is not None and request.started is not None
        if holder(state) is None or time.monotonic() - begun > (most if is_begun else patience):
            return None
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
