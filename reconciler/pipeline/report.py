"""The report of a run, as JSON and as lines of text; the same with and without a daemon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

import msgspec

from reconciler.engines.protocol import Outcome, Result
from reconciler.errors import InternalError, ReconcilerError
from reconciler.model.finding import Finding, Severity, has_errors
from reconciler.model.key import Key
from reconciler.model.revision import Revision, shorten_id, shorten_revision
from reconciler.planning.plan import Action, Plan, StepId
from reconciler.reasons import Reason
from reconciler.records.tables.runs import Run
from reconciler.render.findings import format_place
from reconciler.render.plan.summary import format_summary
from reconciler.times import format_iso_time

DONE = {Action.CREATE: "created", Action.UPDATE: "updated", Action.REPLACE: "replaced", Action.DELETE: "deleted"}
_SEVERITY = {Result.APPLIED: 0, Result.SKIPPED: 1, Result.WAITING: 2, Result.FAILED: 3}
_LONGEST_SUBJECT = 60
MOST_LINES = 50
"""The most findings and failures listed; the rest is only counted."""


class Report(msgspec.Struct, frozen=True):
    """The result of one run of one source.

    ``outcome`` is ``unchanged``, ``applied``, ``waiting`` (for an approval, for health, or pre-empted), ``failed``,
    ``refused`` (findings), ``suspended``, ``plan_changed`` (the plan differs from the reviewed one), or ``unreadable``
    (the source cannot be read; ``message`` has the reason).
    ``counts`` are resources by result (``created``, ``waiting`` …), ``steps`` the finished steps (a resource has one
    for each location; 0: unknown). ``author`` and ``subject`` are those of the commit. ``refusal`` says who refused
    what waits. ``skipped_files`` sums up the errors of skipped files. With ``ends_by_itself``, all that is not applied
    are deletes whose replicas are ending, and what waits for them.
    """

    source: str
    revision: str
    outcome: str
    counts: dict[str, int] = {}
    digest: str = ""
    hold_digest: str = ""
    refusal: str = ""
    reason: str = ""
    message: str = ""
    skipped_files: str = ""
    findings: list[Finding] = []
    not_applied: list[str] = []
    steps: int = 0
    ends_by_itself: bool = False
    author: str = ""
    subject: str = ""

    @property
    def good(self) -> bool:
        """Whether everything desired is applied."""
        return self.outcome in ("unchanged", "applied") and not self.skipped_files


def with_commit(report: Report, revision: Revision) -> Report:
    """``report`` of a run of ``revision``, with who made the commit and its subject."""
    return msgspec.structs.replace(report, author=revision.author, subject=revision.subject)


def of_plan(source: str, revision: str, plan: Plan, outcomes: list[Outcome], findings: list[Finding]) -> Report:
    """The report of an executed plan, with one outcome per step."""
    return Report(
        source,
        revision,
        _compute_outcome(outcomes),
        _count_results(plan, outcomes),
        plan.digest,
        plan.hold_digest,
        plan.refusal,
        steps=sum(one.result is Result.APPLIED for one in outcomes),
        message=format_summary(plan),
        skipped_files=_summarize_errors(findings) if has_errors(findings) else "",
        findings=findings,
        not_applied=_not_applied(outcomes),
        ends_by_itself=_ends_by_itself(plan, outcomes),
    )


def _ends_by_itself(plan: Plan, outcomes: list[Outcome]) -> bool:
    ending: set[StepId] = set()
    unfinished: set[StepId] = set()
    for step, outcome in zip(plan.steps, outcomes, strict=True):
        if outcome.result is Result.APPLIED:
            continue
        is_ending = step.action is Action.DELETE and outcome.reason is Reason.TERMINATING
        blockers = unfinished.intersection(step.waits_for)
        follows = outcome.result is not Result.FAILED and bool(blockers) and blockers <= ending
        unfinished.add(step.id)
        if not (is_ending or follows):
            return False
        ending.add(step.id)
    return bool(ending)


def _count_results(plan: Plan, outcomes: list[Outcome]) -> dict[str, int]:
    """Resources by result, counted as in plans: a resource is done when all its steps are."""
    worst: dict[Action, dict[Key, Result]] = {}
    for step, outcome in zip(plan.steps, outcomes, strict=True):
        same = worst.setdefault(step.action, {})
        former = same.setdefault(step.key, outcome.result)
        if _SEVERITY[outcome.result] > _SEVERITY[former]:
            same[step.key] = outcome.result
    words: Counter[str] = Counter()
    for action, same in worst.items():
        words.update(DONE[action] if result is Result.APPLIED else str(result) for result in same.values())
    return dict(sorted(words.items()))


def merge_reports(before: list[Report], after: list[Report]) -> list[Report]:
    """The reports ``after``, each with the steps of the report ``before`` for the same revision added."""
    earlier = {report.source: report for report in before}
    merged = [
        _combine_reports(earlier[report.source], report) if report.source in earlier else report for report in after
    ]
    seen = {(report.source, report.revision) for report in merged}
    again = {report.source for report in after}
    stand = (report for report in before if (report.source, report.revision) not in seen)
    return [*(report for report in stand if report.source not in again or report.steps), *merged]


def _combine_reports(before: Report, after: Report) -> Report:
    if before.revision != after.revision or not before.steps:
        return after
    return _with_done(after, _count_done(before.counts), before.steps + after.steps)


def with_history(report: Report, runs: Iterable[Run], mark: int) -> Report:
    """``report`` plus the results of other ``runs`` (newest first) of its revision with ids > ``mark``.

    Earlier unfinished runs count too. If the last run had nothing to do, the message sums up the earlier ones.
    """
    mine = list(takewhile(lambda run: run.revision == report.revision, runs))
    is_new = any(run.id > mark and _count_done(run.counts) for run in mine)
    # An unfinished run and those that complete it are one piece of work for the reader.
    open_runs = takewhile(lambda run: run.id > mark or run.outcome != "applied", mine)
    since = sum((_count_done(run.counts) for run in open_runs), Counter())
    if is_new:
        more = since - _count_done(report.counts)
        return _with_done(report, more, 0) if more else report
    earlier = sum((_count_done(run.counts) for run in mine), Counter())
    if report.outcome != "unchanged" or not earlier:
        return report
    # Runs that did nothing, such as this one, are not meant.
    last = next(run for run in mine if _count_done(run.counts))
    when = format_iso_time(last.finished or last.started)
    by = "an earlier `apply`" if last.reason == "apply" else "the daemon"
    summary = ", ".join(f"{earlier[word]} {word}" for word in DONE.values() if earlier[word])
    return msgspec.structs.replace(report, message=f"nothing to do; {by} applied it at {when}: {summary}")


def _count_done(counts: Mapping[str, int]) -> Counter[str]:
    return Counter({word: count for word, count in counts.items() if word in DONE.values()})


def _with_done(report: Report, done: Counter[str], steps: int) -> Report:
    # The last of several runs may have nothing left to do.
    outcome = "applied" if report.outcome == "unchanged" else report.outcome
    counts = dict(sorted((done + Counter(report.counts)).items()))
    return msgspec.structs.replace(report, outcome=outcome, counts=counts, steps=steps)


def _not_applied(outcomes: list[Outcome]) -> list[str]:
    """The steps that were not applied, with reasons; locations with the same reason share a line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in outcomes:
        if one.result is not Result.APPLIED:
            alike.setdefault((str(one.id.key), f"{one.reason}: {one.message}"), []).append(one.id.location)
    return [
        f"{key} at {', '.join(places)}: {why}" if places[0] else f"{key}: {why}" for (key, why), places in alike.items()
    ]


def make_refused_report(source: str, revision: str, findings: list[Finding]) -> Report:
    """The report of a revision refused for errors."""
    count = sum(finding.severity is Severity.ERROR for finding in findings)
    return Report(
        source,
        revision,
        "refused",
        {"errors": count},
        reason=Reason.INVALID_REVISION,
        message=_summarize_errors(findings),
        findings=findings,
    )


def _summarize_errors(findings: list[Finding]) -> str:
    """``2 errors; the first: shop/api.yaml:12:7: unknown field``, for findings with at least one error."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    first = errors[0]
    return f"{len(errors)} error{'s' if len(errors) > 1 else ''}; the first: {format_place(first)}: {first.message}"


def make_suspended_report(source: str, message: str) -> Report:
    """The report of a suspended source; ``message`` names the operator, the end and the reason."""
    return Report(source, "", "suspended", reason=Reason.SUSPENDED, message=message)


def plan_changed(source: str, revision: str, message: str) -> Report:
    """The report of a run that did nothing, because its plan differs from the reviewed one."""
    return Report(source, revision, "plan_changed", reason=Reason.PLAN_CHANGED, message=message)


def make_unreadable_report(source: str, error: ReconcilerError) -> Report:
    """The report of a source that cannot be read; applied resources stay applied."""
    return Report(source, "", "unreadable", reason=error.reason, message=str(error))


def internal_error(source: str, revision: str, bug: InternalError) -> Report:
    """The report of a run that ended in a bug; applied resources stay applied."""
    return Report(source, revision, "failed", reason=bug.reason, message=str(bug))


def _compute_outcome(outcomes: list[Outcome]) -> str:
    results = {outcome.result for outcome in outcomes}
    if Result.FAILED in results:
        return "failed"
    if Result.WAITING in results or Result.SKIPPED in results:
        return "waiting"
    return "applied" if results else "unchanged"


def format_report_lines(report: Report) -> Iterator[str]:
    """The report as lines of text."""
    where = f" at {shorten_revision(report.revision)}" if report.revision else ""
    if where and report.author:
        where += f" ({_shorten_subject(report.subject)}{report.author})"
    yield f"{report.source}: {report.outcome}{where}: {_summary_words(report)}"
    if report.skipped_files:
        yield f"  Files with errors stay as they were: {report.skipped_files}"
    for line in report.not_applied[:MOST_LINES]:
        # The command is the same for all that waits, and has its own line below.
        yield f"  {line.removesuffix(f': reconciler approve {shorten_id(report.hold_digest)}')}"
    if len(report.not_applied) > MOST_LINES:
        yield f"  … and {len(report.not_applied) - MOST_LINES} more"
    if report.hold_digest:
        refused = f"What waits was {report.refusal}. To approve it nevertheless"
        words = refused if report.refusal else "Approve what waits"
        yield f"  {words}: reconciler approve {shorten_id(report.hold_digest)}"


def _shorten_subject(subject: str) -> str:
    if not subject:
        return ""
    return f"{subject if len(subject) <= _LONGEST_SUBJECT else f'{subject[: _LONGEST_SUBJECT - 1]}…'}, "


def _summary_words(report: Report) -> str:
    if report.outcome == "unreadable" or not report.counts:
        return report.message or "nothing to do"
    count = sum(report.counts.values())
    if report.outcome == "refused":
        return f"{count} error{'s' if count > 1 else ''}"
    text = ", ".join(f"{number} {word}" for word, number in report.counts.items())
    steps = f" ({report.steps} step{'s' if report.steps > 1 else ''})" if report.steps not in (0, count) else ""
    return text + steps


def encode_reports(reports: list[Report]) -> dict[str, Any]:
    """Reports as JSON values, for the answer to a request."""
    return {"reports": msgspec.to_builtins(reports)}


def decode_reports(answer: dict[str, Any]) -> list[Report]:
    """Reports from the answer to a request."""
    return msgspec.convert(answer["reports"], list[Report])
