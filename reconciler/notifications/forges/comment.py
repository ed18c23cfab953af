"""The comment on a pull request: before the merge what it would do, after it what it did."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

from reconciler.model.revision import shorten_id
from reconciler.notifications.forges.bodies import build_outcome, cut_line, cut_markdown, make_marker, quote_text
from reconciler.notifications.forges.job import PullPlan
from reconciler.notifications.forges.values import CommitReport, ForgeLimits, PullRequest
from reconciler.notifications.message import Message, State
from reconciler.printable import code_span, escape_text

MOST_UNFOLDED = 5
"""The most steps of a plan whose fields are shown unfolded."""
_FOLDED = "<details><summary>Changed fields</summary>"


def build_plan_comment(name: str, source: str, pull: PullRequest, plan: PullPlan, limits: ForgeLimits) -> str:
    """The comment before the merge, which is found again by ``name``."""
    text = "\n".join(_render_plan(source, pull, plan))
    marker = make_marker(name, html=limits.html)
    return f"{marker}\n\n{cut_markdown(text, limits.comment - len(marker) - 2, html=limits.html)}"


def build_outcome_comment(name: str, source: str, summary: str, message: Message, limits: ForgeLimits) -> str:
    """The comment after the merge: what the run did, and what was planned (``summary``)."""
    text = build_outcome(message)
    if summary:
        text += f"\n\nPlanned before the merge: {quote_text(summary)}."
    text = f"### Source {code_span(source)} after the merge\n\n{text}\n"
    marker = make_marker(name, html=limits.html)
    return f"{marker}\n\n{cut_markdown(text, limits.comment - len(marker) - 2, message.link, html=limits.html)}"


def build_left_comment(name: str, source: str, limits: ForgeLimits) -> str:
    """The comment when nobody follows ``source`` any more."""
    marker = make_marker(name, html=limits.html)
    shown = code_span(source)
    return (
        f"{marker}\n\n### Source {shown}: no plan\n\n"
        f"The source {shown} was removed from the settings: this pull request is not followed any more.\n"
    )


def build_head_report(
    context: str, pull: PullRequest, plan: PullPlan, limits: ForgeLimits, at: float, *, is_new: bool
) -> CommitReport:
    """The status of the head of ``pull``: whether it can be applied. ``is_new``: the head has none yet."""
    text = plan.summary or plan.problem
    return CommitReport(
        plan.head,
        State.FAILURE if plan.has_errors or plan.problem else State.SUCCESS,
        context,
        cut_line(escape_text(text), limits.title),
        quote_text(text),
        at,
        # Annotations add up at GitHub: those of a head are sent once.
        findings=plan.findings if is_new else (),
        branch=pull.branch,
    )


def make_secret_name(key: bytes, source: str, number: int) -> str:
    """A name for the comment on a pull request, by the secret ``key``: nobody can write it before us."""
    text = f"pull-request\0{source}\0{number}".encode()
    return f"reconciler:{source}:{hmac.new(key, text, hashlib.sha256).hexdigest()[:32]}"


def _render_plan(source: str, pull: PullRequest, plan: PullPlan) -> Iterator[str]:
    if plan.problem:
        yield f"### Source {code_span(source)}: no plan\n"
        yield f"{quote_text(plan.problem)}\n"
    elif 0 < plan.changes <= MOST_UNFOLDED:
        # Only a whole line of our own is this one: code of others is in a span.
        yield "\n".join(
            line.replace("<details>", "<details open>") if line == _FOLDED else line
            for line in plan.markdown.split("\n")
        )
    else:
        yield plan.markdown
    if plan.waiting:
        steps = "1 resource waits" if plan.waiting == 1 else f"{plan.waiting} resources wait"
        yield f"After the merge, {steps} for an approval: `reconciler approve`. Who may approve: {plan.approvers}.\n"
    if pull.is_fork:
        yield "This is from a fork: it is planned without secrets, records and locations, and never applied.\n"
    yield f"<sub>{_describe_revisions(pull, plan)}</sub>"


def _describe_revisions(pull: PullRequest, plan: PullPlan) -> str:
    head = code_span(shorten_id(plan.head or pull.head))
    base = f" at {code_span(shorten_id(plan.base))}" if plan.base else ""
    applied = f", compared with {code_span(shorten_id(plan.applied))}, which is applied" if plan.applied else ""
    return f"Head {head}, merged into {quote_text(pull.base, 100)}{base}{applied}."
