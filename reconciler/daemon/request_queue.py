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
from reconciler.records.tables.requests import PLAN, TAKE_STATUS_BRANCH, Request
from reconciler.render.plan.rendered import PlanAnswer, PlanRequest, RenderedPlan
from reconciler.settings import settings_digest

MAX_BYTES = 1 << 20
"""The size of the largest answer: with longer plans, which take long anyway, the records would grow."""
MAX_STEPS = 2_000
"""The most steps of a plan that is rendered: longer ones hardly fit into an answer."""

NO_PLANS: dict[str, Any] = {"plans": None}

Run = Callable[[str, str, SavedPlan | None], Awaitable[Report]]
"""Runs a source for a reason, only if its plan is still the saved one."""


class RequestQueue:
    """The open requests of ``runner``, answered one after the other between two runs.

    A request whose command has given up is not answered.
    """

    def __init__(self, runner: Runner, run: Run, flush: Callable[[], Awaitable[None]]) -> None:
        """``flush`` writes the status of what ``run`` did."""
        self._runner = runner
        self._run = run
        self._flush = flush

    async def answer_runs(self) -> None:
        """Run the sources for each open request. Raises RecordsError."""
        requests = self._runner.records.requests
        for request in requests.open():
            if request.kind != PLAN and requests.start(request.id):
                requests.record_result(request.id, await self._reconcile(request))

    async def answer_plans(self, progress: Callable[[], None]) -> None:
        """Answer each open request for plans, and call ``progress`` before each. Raises RecordsError.

        A run that is due goes first: it reads what operators have just changed, and must not wait for plans.
        """
        requests = self._runner.records.requests
        for request in requests.open():
            progress()
            if request.kind == PLAN and requests.start(request.id):
                requests.record_result(request.id, await asyncio.to_thread(self._plan, request))

    async def _reconcile(self, request: Request) -> dict[str, Any]:
        """Run the sources, and report each run; a bug is a report too, so that who asked asks no second time."""
        reports: list[Report] = []
        try:
            if request.args.get(TAKE_STATUS_BRANCH):
                self._runner.take_status_branches()
            plans = {plan.source: plan for plan in msgspec.convert(request.args.get("plans", []), list[SavedPlan])}
            for name in plans.keys() & self._runner.pipelines.keys() or self._runner.pipelines:
                report = await self._run(name, request.kind, plans.get(name))
                reports.append(report)
            await self._flush()
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - who asked gets an answer
            bug = internal_error(error, f"request {request.kind}")
            reports += [internal_error_report(name, "", bug) for name in self._runner.pipelines]
        return encode_reports(reports)

    def _plan(self, request: Request) -> dict[str, Any]:
        """Plan the sources; without an answer, the command plans by itself and reports what prevents it."""
        try:
            answer: dict[str, Any] = msgspec.to_builtins(PlanAnswer(self._rendered_plans(request)))
            too_large = len(msgspec.json.encode(answer)) > MAX_BYTES
        except (RecordsError, SourceError):
            return NO_PLANS  # the next run meets and reports it too
        except Exception as error:  # noqa: BLE001 - who asked gets an answer
            internal_error(error, f"request {request.kind}")
            return NO_PLANS
        return NO_PLANS if too_large else answer

    def _rendered_plans(self, request: Request) -> list[RenderedPlan] | None:
        runner = self._runner
        plan_request = msgspec.convert(request.args, PlanRequest)
        lines = [
            line
            for name in plan_request.sources
            if (line := runner.pipelines.get(name)) is not None and line.source.local
        ]
        # A command with other settings may be run to see what they would do. A fetch would delay the runs of others.
        if plan_request.settings != settings_digest(runner.settings) or len(lines) < len(plan_request.sources):
            return None
        if runner.records.reserve.full:
            return None
        from reconciler.render.plan.review import render_plan
        from reconciler.review.plan import review_planned

        plans = []
        for line in lines:
            planned = line.plan_current(line.current_revision(), runner.states[line.name])
            if planned.plan is not None and len(planned.plan.steps) > MAX_STEPS:
                return None
            plans.append(
                render_plan(
                    review_planned(line, planned, plan_request.blame), plan_request.form, colour=plan_request.colour
                )
            )
        return plans
