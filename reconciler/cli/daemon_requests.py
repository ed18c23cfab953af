"""Requests of commands to the running daemon: a row in the records, a wake-up, and the answer in the same row."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reconciler import __version__
from reconciler.cli.options import get_operator_name
from reconciler.daemon.lock import find_lock_holder
from reconciler.daemon.wake import REQUESTS, wake_daemon
from reconciler.errors import RecordsError, RefusedError
from reconciler.records.database import FILE
from reconciler.records.tables.requests import PLAN, TAKE_STATUS_BRANCH, Requests, requests_table

if TYPE_CHECKING:
    from reconciler.pipeline.report import Report
    from reconciler.pipeline.saved_plan import SavedPlan
    from reconciler.records.store import Records
    from reconciler.render.plan.rendered import PlanRequest, RenderedPlan

PATIENCE_SECONDS = 0.5
"""How long a command waits for the daemon to begin what the command can do by itself."""
WORK_SECONDS = 60.0
"""How long a command waits for the daemon to finish what it has begun."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.001, 0.02


def request_run(
    records: Records, state: Path, seconds: float, plans: dict[str, SavedPlan] | None, *, takes_status: bool = False
) -> list[Report]:
    """Let the daemon run every source, or only those of ``plans`` and only as planned; return the reports.

    ``takes_status``: it takes the status branches over from other daemons. Raises RefusedError after ``seconds``, or if
    the daemon ends.
    """
    from reconciler.pipeline.report import decode_reports

    payload: dict[str, Any] = {TAKE_STATUS_BRANCH: True} if takes_status else {}
    if plans is not None:
        payload["plans"] = [msgspec.to_builtins(plan) for plan in plans.values()]
    number = records.requests.add("apply", payload, get_operator_name())
    wake_daemon(state, None, "apply")
    answer = _wait_for_answer(records.requests, state, number, seconds, seconds)
    if answer is None and find_lock_holder(state) is None:
        raise RefusedError("the daemon ended before it finished the run; try again")
    if answer is None:
        raise RefusedError("the daemon did not finish the run in time; see its log and `reconciler events`")
    return decode_reports(answer)


def request_plans(state: Path, request: PlanRequest) -> list[RenderedPlan] | None:
    """Let the daemon plan, which has everything in memory; None if the command has to plan by itself."""
    daemon = find_lock_holder(state)
    # A daemon of another version may take the request for one that it knows, such as a run.
    if daemon is None or daemon.version != __version__ or not os.access(state / FILE, os.W_OK):
        return None
    try:
        with requests_table(state / FILE, PATIENCE_SECONDS) as requests:
            return _request_plans(requests, state, request)
    except RecordsError:
        return None  # such as a full disk: reading may still be possible


def _request_plans(requests: Requests, state: Path, request: PlanRequest) -> list[RenderedPlan] | None:
    from reconciler.render.plan.rendered import PlanAnswer

    number = requests.add(PLAN, msgspec.to_builtins(request), get_operator_name())
    answer = None
    try:
        if wake_daemon(state, REQUESTS, PLAN):
            answer = _wait_for_answer(requests, state, number, PATIENCE_SECONDS, WORK_SECONDS)
    finally:
        with suppress(RecordsError):  # the next request removes it later
            requests.remove(number)
    try:
        return msgspec.convert(answer, PlanAnswer).plans if answer is not None else None
    except msgspec.ValidationError:
        return None  # of a daemon with other code, though of the same version


def _wait_for_answer(
    requests: Requests, state: Path, number: int, patience: float, most: float
) -> dict[str, Any] | None:
    """The answer to a request; None if it is not begun within ``patience`` or not answered within ``most`` seconds, or
    if the daemon ends.
    """
    begun, pause = time.monotonic(), FIRST_PAUSE_SECONDS
    while True:
        request = requests.get(number)
        if request is not None and request.result is not None:
            return request.result
        is_begun = request is not None and request.started is not None
        if find_lock_holder(state) is None or time.monotonic() - begun > (most if is_begun else patience):
            return None
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
