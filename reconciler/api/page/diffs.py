"""What differs between two revisions of a source."""

from __future__ import annotations

from http import HTTPStatus
from shlex import quote
from typing import Any
from urllib.parse import quote as quote_path
from urllib.parse import urlencode

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.plans import show_steps
from reconciler.api.page.rendering import render_page
from reconciler.api.problems import Problem
from reconciler.api.routes.overviews import run_in_thread
from reconciler.api.routes.plans import compare_source
from reconciler.api.table import ANY, make_page_operation
from reconciler.errors import RefusedError
from reconciler.model.key import Key, Kind
from reconciler.model.revision import COMMIT_OR_PARENT
from reconciler.queries.existence import find_source

_PARAMETERS = ("from", "to", "key", "after")
MOST_FILES = 10
"""The files that one page compares; the others are on the pages that follow."""


async def show_diff(call: Call) -> Response:
    """The differences that the caller may view between two revisions, of all resources or of one."""
    before, after, text = (call.query(name).strip() for name in ("from", "to", "key"))
    org, key = Key(Kind.ORG, "", call.org), _parse_key(text)
    sees_org = call.may("view", org)
    if key is None or not sees_org:
        call.require("view", org if key is None else key)
    if not sees_org and not (COMMIT_OR_PARENT.fullmatch(before) and COMMIT_OR_PARENT.fullmatch(after)):
        raise Problem(
            403, f"{call.caller.principal} has no permission `view` on {org}, so name both commits by their id"
        )
    source = find_source(call.api.settings, call.request.path_params["name"])
    path = call.query("after")
    command = f"reconciler diff {quote(before)} {quote(after)} --source {source.name}" + (
        f" --key {key}" if key is not None else ""
    )
    values: dict[str, Any] = {"name": source.name, "before": before, "after": after, "key": text, "sees_org": sees_org}
    values["problem"] = ""
    if not (before and after):
        return render_page(call, "diff.html", **values, diff=None, command="")
    try:
        diff = await run_in_thread(call, lambda: compare_source(call, source, MOST_FILES, path))
    except RefusedError as error:
        raise Problem(409, str(error)) from None
    except Problem as problem:
        if problem.status != HTTPStatus.NOT_FOUND or before != f"{after}~1":
            raise
        # A link to what a commit changed does not know whether it is the first one.
        return render_page(call, "diff.html", **values | {"problem": str(problem)}, diff=None, command="")
    seen = [step for step in diff.plan.steps if _may_view_step(call, step.key, step.body)]
    following = {"from": diff.before.commit, "to": diff.after.commit, "after": diff.following}
    values |= {
        "is_part_of_it": bool(path or diff.following),
        "next_page": f"/ui/diff/source/{quote_path(source.name)}?{urlencode(following)}" if diff.following else "",
    }
    return render_page(call, "diff.html", **values, diff=diff, command=command, **show_steps(diff.plan, seen))


def _parse_key(text: str) -> Key | None:
    try:
        return Key.parse(text) if text else None
    except ValueError as error:
        raise Problem(400, str(error)) from None


def _may_view_step(call: Call, key: Key, body: bytes) -> bool:
    """Whether the caller may view a resource as it is, or as it was where it is gone."""
    import msgspec

    if call.reader.records.applied.exists(key):
        return call.may("view", key)
    return call.may("view", key, lambda: msgspec.json.decode(body))


PAGES = (
    make_page_operation(
        "/ui/diff/source/{name}", show_diff, "What differs between two revisions of a source.", ANY, _PARAMETERS
    ),
)
