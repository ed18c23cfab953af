"""What a rollback of one resource would change, to read before it happens."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.plans import show_steps
from reconciler.api.page.rendering import render_page
from reconciler.api.problems import Problem
from reconciler.api.routes.changes import RollbackRequest, make_view_check, select_own_steps, try_rollback
from reconciler.api.table import make_page_operation
from reconciler.changes.requests import EarlierChange
from reconciler.errors import ReconcilerError
from reconciler.model.key import Key, Kind

_MOST_LINES = 1_000
"""The most lines of a difference that are shown."""


async def show_rollback(call: Call) -> Response:
    """The plan of a rollback, and the form that does it; why there is none."""
    from reconciler.api.commits import visible_change

    key, asked = call.existing("edit"), call.query("revision").strip()
    call.require("view", key)
    values: dict[str, Any] = {
        "key": key,
        "asked": asked,
        "sees_org": call.may("view", Key(Kind.ORG, "", call.org)),
        "rollback": None,
        "change": None,
        "problem": "",
        "is_review": call.api.writes == "branch",
    }
    try:
        rollback, change = await try_rollback(call, RollbackRequest(asked), dry=True)
    except (Problem, ReconcilerError) as error:
        status = error.status if isinstance(error, Problem) else 409
        return render_page(call, "rollback.html", status, **values | {"problem": str(error)})
    if change is None or isinstance(change, EarlierChange):
        return render_page(call, "rollback.html", **values | {"rollback": rollback})
    plan, whole = select_own_steps(change, key), change.planned.plan
    assert whole is not None
    shown = visible_change(change, make_view_check(call, [rollback.edit]), dry=True)
    more = {
        "rollback": rollback,
        "change": change,
        "digest": whole.digest,
        "others": len(whole.steps) - len(plan.steps),
        "lines": shown["diff"].splitlines()[:_MOST_LINES],
        **show_steps(plan, plan.steps),
    }
    return render_page(call, "rollback.html", **values | more)


PAGES = tuple(
    make_page_operation(path, show_rollback, "What a rollback of a resource would do.", "edit", ("revision",))
    for path in ("/ui/rollback/{kind}/{name}", "/ui/rollback/{kind}/{gvc}/{name}")
)
