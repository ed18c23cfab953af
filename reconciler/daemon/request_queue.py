"""Answers the requests that commands leave in the records: for a run of the sources, or for their plans."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from reconciler.bugs import internal_error
from reconciler.errors import RecordsError, SourceError
from reconciler.pipeline.report import Report, encode_reports
from reconciler.pipeline.report import internal_error as internal_error_report
from reconciler.pipeline.runner import Runner
from reconciler.pipeline.saved_plan import SavedPlan
from reconciler.records.tables.requests import Request
from reconciler.render.plan.rendered import PlanAnswer, PlanRequest, RenderedPlan
from reconciler.settings import settings_digest

PLAN = "plan"
"""The kind of a request for plans, and the reason of its wake-up."""
MOST_BYTES = 1 << 20
"""The size of the largest answer: with longer plans, which take long anyway, the records would grow."""

Run = Callable[[str, str, SavedPlan | None], Awaitable[Report]]
"""Runs a source for a reason, only if its plan is still the saved one."""


class RequestQueue:
    """The open requests of ``runner``, answered one after the other between two runs."""

    def __init__(self, runner: Runner, run: Run, flush: Callable[[], Awaitable[None]]) -> None:
        """``flush`` writes the status of what ``run`` did."""
        self._runner = runner
        self._run = run
        self._flush = flush

    async def answer_all(self) -> None:
        """Answer every open request. Raises RecordsError."""
        requests = self._runner.records.requests
        for request in requests.open():
            requests.start(request.id)
            answer = self._plan if request.kind == PLAN else self._reconcile
            requests.done(request.id, await answer(request))

    async def _reconcile(self, request: Request) -> dict[str, Any]:
        """Run the sources, and report each run; a bug is a report too, so that who asked asks no second time."""
        reports: list[Report] = []
        try:
            plans = {plan.source: plan for plan in msgspec.convert(request.args.get("plans", []), list[SavedPlan])}
            for name in plans.keys() & self._runner.lines.keys() or self._runner.lines:
                report = await self._run(name, request.kind, plans.get(name))
                reports.append(report)
            await self._flush()
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - who asked gets an answer
            bug = internal_error(error, f"request {request.kind}")
            reports += [internal_error_report(name, "", bug) for name in self._runner.lines]
        return encode_reports(reports)

    async def _plan(self, request: Request) -> dict[str, Any]:
        """Plan the sources; without an answer, the command plans by itself and reports what prevents it."""
        try:
            plans = await asyncio.to_thread(self._plans, msgspec.convert(request.args, PlanRequest))
        except RecordsError:
            raise
        except SourceError:
            plans = None
        except Exception as error:  # noqa: BLE001 - as above
            internal_error(error, f"request {request.kind}")
            plans = None
        answer: dict[str, Any] = msgspec.to_builtins(PlanAnswer(plans))
        return answer if len(msgspec.json.encode(answer)) < MOST_BYTES else {"plans": None}

    def _plans(self, wanted: PlanRequest) -> list[RenderedPlan] | None:
        runner = self._runner
        lines = [runner.lines.get(name) for name in wanted.sources]
        if wanted.settings != settings_digest(runner.settings):
            return None  # the command may be run to see what its settings would do
        if any(line is None or not line.source.local for line in lines):
            return None  # runs of other sources would wait for the remote
        from reconciler.render.plan.review import render_plan
        from reconciler.review.plan import review_planned

        found = []
        for line in filter(None, lines):
            planned = line.plan_current(line.current_revision(), runner.states[line.name])
            review = review_planned(line, planned, wanted.blame)
            found.append(render_plan(review, wanted.form, colour=wanted.colour))
        return found
