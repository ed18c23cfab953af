"""Plans: what a run would do, to read before it happens and to approve."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from reconciler.access.rules import APPROVE
from reconciler.api.call import Call
from reconciler.api.page.rendering import render_page
from reconciler.api.routes.overviews import require_everything, run_in_thread
from reconciler.api.routes.plans import find_plan_of_digest, plan_revision
from reconciler.api.table import OVERVIEW, make_page_operation
from reconciler.model.key import Key, Kind
from reconciler.queries.existence import find_source

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan, Step
    from reconciler.render.plan.review import PlanReview


async def show_plan(call: Call) -> Response:
    """What a run of a source would do, to apply a revision."""
    require_everything(call)
    source = find_source(call.api.settings, call.request.path_params["name"])
    revision = call.query("revision")
    review = await run_in_thread(call, lambda: plan_revision(call, source, revision, None))
    option = f" --revision {quote(revision)}" if revision else ""
    return _render_plan(call, review, f"reconciler plan {source.name}{option}", revision)


async def show_plan_of_digest(call: Call) -> Response:
    """The current plan with a digest: what an approver is asked about."""
    require_everything(call)
    digest = call.request.path_params["digest"]
    review = await run_in_thread(call, lambda: find_plan_of_digest(call, digest))
    source = review.plan.source if review.plan is not None else ""
    return _render_plan(call, review, f"reconciler plan {source}")


def _render_plan(call: Call, review: PlanReview, command: str, revision: str = "") -> Response:
    """The page of a plan; ``revision`` is that to which its source can be rolled back, "" for the newest one."""
    from reconciler.access.approvers import describe_approvers
    from reconciler.render.plan.review import list_foreseen

    org = Key(Kind.ORG, "", call.org)
    plan = review.plan
    return render_page(
        call,
        "plan.html",
        review=review,
        plan=plan,
        notes=list(list_foreseen(review)),
        command=command,
        may_approve=call.may(APPROVE, org),
        approvers=describe_approvers(review.approvers) if review.approvers is not None else "",
        rolls_back_to=revision if call.may("edit", org) else "",
        **show_steps(plan, plan.steps if plan is not None else ()),
    )


def show_steps(plan: Plan | None, steps: Sequence[Step]) -> dict[str, Any]:
    """What the template of steps needs to show ``steps`` of ``plan``."""
    import msgspec

    from reconciler.planning.blame import format_blame
    from reconciler.planning.diff import highest_impact
    from reconciler.render.plan.summary import changes_of, diff_lines, format_summary, group_steps, shown_pair
    from reconciler.render.plan.text import NOTES

    shown = None if plan is None else msgspec.structs.replace(plan, steps=tuple(steps))
    return {
        "groups": list(group_steps(shown)) if shown is not None else [],
        "summary": format_summary(shown) if shown is not None else "",
        "changes_of": changes_of,
        "shown_pair": shown_pair,
        "diff_lines": diff_lines,
        "format_blame": format_blame,
        "impact_of": lambda step: NOTES[highest_impact(step.changes)],
    }


PAGES = (
    make_page_operation("/ui/plan/source/{name}", show_plan, "What a run would do.", OVERVIEW, ("revision",)),
    make_page_operation("/ui/plan/digest/{digest}", show_plan_of_digest, "The plan with a digest.", OVERVIEW),
)
