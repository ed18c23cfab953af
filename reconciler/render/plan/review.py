"""A plan with its findings, as text, Markdown and JSON, for the people and programs that decide about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reconciler.access.approvers import Approvers, describe_approvers
from reconciler.errors import ReconcilerError
from reconciler.model.finding import Finding, Severity, has_errors
from reconciler.model.revision import Revision, shorten_revision
from reconciler.planning.blame import Blames
from reconciler.planning.plan import Plan
from reconciler.printable import code_span, escape_text
from reconciler.render.excerpt import Excerpts
from reconciler.render.findings import (
    explain_hint,
    findings_document,
    findings_text,
    markdown_findings,
    severity_counts,
)
from reconciler.render.plan.json import build_plan_document
from reconciler.render.plan.markdown import render_markdown
from reconciler.render.plan.rendered import RenderedPlan
from reconciler.render.plan.text import render_plan_text
from reconciler.render.sources import hold_lines, source_document
from reconciler.status.source_status import SourceStatus

if TYPE_CHECKING:
    from reconciler.engines.plugin import ForeseenLimitation, ForeseenRollout, ForeseenStop, PlanTrial
    from reconciler.source.file_reader import Read

MAX_LIMITATIONS, MAX_KEYS = 20, 3
"""The most limitations shown, and the most workloads named with each; the rest are only counted."""


class PlanReview(msgspec.Struct, frozen=True):
    """The plan of a revision, None if errors refuse it; and the counts of its documents and resources.

    ``read`` returns the bytes of a file by its path in findings, ``blames`` has the commits that caused the changes, if
    searched for. ``since`` is the base revision, if that is not the applied one. ``status`` is that of the source: a
    suspended one is not applied. ``limitations`` are the fields that the locations do not enforce, ``rollouts`` come by
    changed settings, ``trial`` is what locations say of the steps, None if none has an opinion. ``approvers`` may
    approve what waits; None if nothing does, or if only operators of this host may.
    """

    revision: Revision
    plan: Plan | None
    findings: list[Finding]
    documents: int
    resources: int
    read: Read
    blames: Blames | None = None
    since: str = ""
    status: SourceStatus | None = None
    limitations: Sequence[ForeseenLimitation] = ()
    stops: Sequence[ForeseenStop] = ()
    rollouts: Sequence[ForeseenRollout] = ()
    trial: PlanTrial | None = None
    approvers: Approvers | None = None

    @property
    def has_errors(self) -> bool:
        """Whether any file of the revision has errors, even if the settings skip it, or a location refuses a step."""
        refused = self.trial is not None and bool(self.trial.refusals)
        return self.plan is None or refused or has_errors(self.findings)


def render_plan(review: PlanReview, form: str, *, colour: bool = False) -> RenderedPlan:
    """``review`` in ``form``: text, json or markdown; text has colours if ``colour``."""
    changes = len(review.plan.steps) + len(review.rollouts) if review.plan is not None else 0
    if form == "json":
        # A plan as JSON has no place for findings; without a plan, the document lists them.
        findings = "" if review.plan is None else findings_text(review.findings, Excerpts(review.read), colour=colour)
        return RenderedPlan(changes, review.has_errors, document=plan_document(review), findings=findings)
    shown = plan_markdown(review) if form == "markdown" else plan_text(review, colour=colour)
    return RenderedPlan(changes, review.has_errors, shown)


def plan_text(review: PlanReview, *, colour: bool = False) -> str:
    """The findings with their lines, the plan, its limitations, and holds of the source."""
    shown = findings_text(review.findings, Excerpts(review.read), colour=colour)
    if review.plan is None:
        shown += f"{shorten_revision(str(review.revision))} is refused: {severity_counts(review.findings)}\n"
    else:
        shown += render_plan_text(review.plan, colour=colour, blames=review.blames, since=review.since)
        if review.approvers is not None:
            shown += f"Who may approve: {describe_approvers(review.approvers)}\n"
        shown += "".join(f"{escape_text(line)}\n" for line in list_foreseen(review))
    if review.status is not None:
        shown += "".join(f"Source {review.status.name}: {line}\n" for line in hold_lines(review.status))
    return shown + explain_hint(review.findings)


def plan_markdown(review: PlanReview) -> str:
    """The comment on a pull request: the plan, the findings, its limitations, and holds of the source."""
    shown = _render_review_markdown(review)
    if review.approvers is not None:
        shown += f"\nWho may approve: {describe_approvers(review.approvers, code_span)}.\n"
    shown += "".join(f"\n{code_span(line)}\n" for line in list_foreseen(review))
    if (status := review.status) is not None:
        shown += "".join(f"\nSource {code_span(status.name)}: {code_span(line)}\n" for line in hold_lines(status))
    return shown


def plan_document(review: PlanReview) -> dict[str, Any]:
    """The plan as JSON values, or the findings that refuse it."""
    if review.plan is None:
        return findings_document(review.findings, review.documents, review.resources)
    fields = build_plan_document(review.plan, review.blames)
    if review.since:
        fields["since"] = review.since
    if review.status is not None:
        fields["not_enforced"] = [
            {"message": limitation.message, "location": limitation.location, "keys": list(map(str, limitation.keys))}
            for limitation in review.limitations
        ]
        fields["stops"] = [
            {"message": stop.message, "location": stop.location, "key": str(stop.key)} for stop in review.stops
        ]
        fields["rollouts"] = [
            {"message": one.message, "location": one.location, "key": str(one.key)} for one in review.rollouts
        ]
        fields |= _trial_fields(review.trial)
        status = source_document(review.status)
        fields |= {name: status[name] for name in ("pinned", "suspended")}
    return fields


def _trial_fields(trial: PlanTrial | None) -> dict[str, Any]:
    """What locations say of a plan, where a location has an opinion."""
    if trial is None:
        return {}
    return {
        "refused": [{"message": one.message, "location": one.location, "key": str(one.key)} for one in trial.refusals],
        "replaced": [
            {"message": one.message, "location": one.location, "key": str(one.key)} for one in trial.replacements
        ],
        "not_asked": [{"message": one.message, "location": one.location} for one in trial.unasked],
    }


def failure_document(source: str, error: ReconcilerError) -> dict[str, Any]:
    """A source that cannot be planned, in place of its plan."""
    return {"source": source, "error": {"reason": error.reason, "message": str(error)}}


def failure_markdown(source: str, error: ReconcilerError) -> str:
    """A source that cannot be planned, in place of its plan."""
    return f"### Source {code_span(source)}: no plan\n\n{code_span(str(error))}\n"


def _render_review_markdown(review: PlanReview) -> str:
    if review.plan is None:
        return markdown_findings(review.findings, "Refused")
    shown = render_markdown(review.plan, review.blames, review.since)
    if all(finding.severity is Severity.NOTICE for finding in review.findings):
        return shown
    heading = "Skipped" if has_errors(review.findings) else "Warnings"
    return f"{shown}\n{markdown_findings(review.findings, heading)}"


def list_foreseen(review: PlanReview) -> Iterator[str]:
    """A line for each rollout by the settings, each stop and each limitation."""
    for rollout in review.rollouts[:MAX_LIMITATIONS]:
        yield f"Rolls out at {rollout.location}: {rollout.key}: {rollout.message}"
    if len(review.rollouts) > MAX_LIMITATIONS:
        yield f"… and {len(review.rollouts) - MAX_LIMITATIONS} more that roll out"
    for stop in review.stops[:MAX_LIMITATIONS]:
        yield f"Stops at {stop.location}: {stop.key}: {stop.message}"
    if len(review.stops) > MAX_LIMITATIONS:
        yield f"… and {len(review.stops) - MAX_LIMITATIONS} more that stops"
    yield from _not_enforced(review.limitations)
    if review.trial is not None:
        yield from _render_trial_lines(review.trial)


def _render_trial_lines(trial: PlanTrial) -> Iterator[str]:
    """A line for each thing that a location refuses, or makes anew, and for each location that was not asked."""
    for replacement in trial.replacements[:MAX_LIMITATIONS]:
        yield f"Replaced at {replacement.location}: {replacement.key}: {replacement.message}"
    if len(trial.replacements) > MAX_LIMITATIONS:
        yield f"… and {len(trial.replacements) - MAX_LIMITATIONS} more that are replaced"
    for refusal in trial.refusals[:MAX_LIMITATIONS]:
        yield f"Refused at {refusal.location}: {refusal.key}: {refusal.message}"
    if len(trial.refusals) > MAX_LIMITATIONS:
        yield f"… and {len(trial.refusals) - MAX_LIMITATIONS} more that are refused"
    yield from (f"Not asked at {unasked.location}: {unasked.message}" for unasked in trial.unasked)


def _not_enforced(limitations: Sequence[ForeseenLimitation]) -> Iterator[str]:
    """A line for each limitation, with its workloads."""
    for limitation in limitations[:MAX_LIMITATIONS]:
        names = ", ".join(map(str, limitation.keys[:MAX_KEYS]))
        more_keys = f" and {len(limitation.keys) - MAX_KEYS} more" if len(limitation.keys) > MAX_KEYS else ""
        yield f"Not enforced at {limitation.location}: {names}{more_keys}: {limitation.message}"
    if len(limitations) > MAX_LIMITATIONS:
        yield f"… and {len(limitations) - MAX_LIMITATIONS} more that is not enforced"
