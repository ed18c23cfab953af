"""Plans for operators: what a run of a source would do, as JSON and as the text of `reconciler plan`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import JSON, Problem
from reconciler.api.routes.overviews import format_terminal_text, require_everything, run_in_thread
from reconciler.api.table import MARKDOWN, OVERVIEW, TEXT, Operation
from reconciler.errors import SourceError, SourceNotFound
from reconciler.model.finding import Severity
from reconciler.model.key import Key
from reconciler.operations.approval import MIN_PREFIX
from reconciler.queries.existence import find_source

if TYPE_CHECKING:
    from reconciler.queries.revisions import RevisionDiff
    from reconciler.render.plan.review import PlanReview
    from reconciler.settings import SourceSettings

CHANGES, ERRORS = "Plan-Changes", "Plan-Errors"
"""Headers of a plan: the number of its steps, and of the errors in the revision and the refusals of locations."""


async def read_plan(call: Call) -> Response:
    """What a run of a source would do to apply a revision; its headers count the steps and errors."""
    require_everything(call)
    source = find_source(call.api.settings, call.request.path_params["name"])
    revision, blame = call.query("revision"), call.flag("blame")
    return _plan_response(call, await run_in_thread(call, lambda: plan_revision(call, source, revision, blame)))


async def read_plan_of_digest(call: Call) -> Response:
    """The current plan with a digest, of the plan or of its steps that wait: what an approver is asked about."""
    require_everything(call)
    digest = call.request.path_params["digest"]
    return _plan_response(call, await run_in_thread(call, lambda: find_plan_of_digest(call, digest)))


async def read_diff(call: Call) -> Response:
    """The fields that differ between two revisions of a source, of all resources or of one."""
    from reconciler.queries.revisions import list_unread, review_diff

    require_everything(call)
    source = find_source(call.api.settings, call.request.path_params["name"])
    diff = await run_in_thread(call, lambda: compare_source(call, source))
    return _plan_response(call, review_diff(diff), list_unread(diff))


def compare_source(call: Call, source: SourceSettings, most: int = 0, path: str = "") -> RevisionDiff:
    """What differs in ``source`` between the revisions of the query; ``most`` and ``path`` as of Comparison.

    Raises Problem 400 and 404.
    """
    from reconciler.queries.revisions import Comparison, compare_revisions

    before, after, text = call.query("from"), call.query("to"), call.query("key")
    if not (before and after):
        raise Problem(400, "from and to are the two revisions to compare")
    try:
        asked = Comparison(before, after, Key.parse(text) if text else None, most=most, path=path)
    except ValueError as error:
        raise Problem(400, str(error)) from None
    try:
        return compare_revisions(call.api.settings, source, call.reader.records, asked)
    except SourceNotFound as error:
        raise Problem(404, str(error)) from None


def find_plan_of_digest(call: Call, digest: str) -> PlanReview:
    """The current plan whose digest, or that of its steps that wait, begins so. Raises Problem 400 and 404."""
    from reconciler.review.plan import plan_source

    if len(digest) < MIN_PREFIX:
        raise Problem(400, f"write the first {MIN_PREFIX} characters of a digest, or more")
    for source in call.api.settings.sources:
        with contextlib.suppress(SourceError):
            review = plan_source(call.api.settings, source, call.reader.records, "", blame=None, first=False)
            plan = review.plan
            if plan is not None and any(text.startswith(digest) for text in (plan.digest, plan.hold_digest)):
                return review
    raise Problem(404, f"no current plan has the digest {digest[:64]}")


def plan_revision(call: Call, source: SourceSettings, revision: str, blame: bool | None) -> PlanReview:
    """What a run of ``source`` would do to apply ``revision`` ("": the newest). Raises Problem 400 and 404."""
    from reconciler.review.plan import plan_source

    # Git would compare a pattern with the message of every commit, and no other thread runs meanwhile.
    if revision.startswith(":") or "^{/" in revision:
        raise Problem(400, "revision is a commit, branch or tag, and no search in messages")
    try:
        return plan_source(call.api.settings, source, call.reader.records, revision, blame=blame, first=False)
    except SourceNotFound as error:
        raise Problem(404, str(error)) from None


def _plan_response(call: Call, review: PlanReview, notes: Sequence[str] = ()) -> Response:
    from reconciler.render.plan.review import plan_document, plan_markdown, plan_text

    changes = len(review.plan.steps) if review.plan is not None else 0
    errors = sum(finding.severity is Severity.ERROR for finding in review.findings)
    refused = len(review.trial.refusals) if review.trial is not None else 0
    headers = {CHANGES: str(changes), ERRORS: str(errors + refused)}
    match call.choose_media_type(JSON, TEXT, MARKDOWN):
        case media if media == TEXT:
            text = "".join((plan_text(review), *(f"{note}\n" for note in notes)))
            return Response(format_terminal_text(text), headers=headers, media_type=TEXT)
        case media if media == MARKDOWN:
            return Response(plan_markdown(review), headers=headers, media_type=MARKDOWN)
    return call.respond(plan_document(review), headers=headers)


OPERATIONS = (
    Operation(
        "GET",
        "/org/{org}/source/{name}/-plan",
        read_plan,
        "Plan a revision of a source.",
        OVERVIEW,
        parameters=("revision", "blame"),
        forms=(TEXT, MARKDOWN),
    ),
    Operation(
        "GET",
        "/org/{org}/source/{name}/-diff",
        read_diff,
        "Read what differs between two revisions of a source.",
        OVERVIEW,
        parameters=("from", "to", "key"),
        forms=(TEXT, MARKDOWN),
    ),
    Operation(
        "GET",
        "/org/{org}/-plan/{digest}",
        read_plan_of_digest,
        "Read the current plan with a digest.",
        OVERVIEW,
        forms=(TEXT, MARKDOWN),
    ),
)
