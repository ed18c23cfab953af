"""An operator approves or refuses the held steps of the plan with a digest, or accepts a rewritten history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from reconciler.clock import SystemClock
from reconciler.errors import RefusedError, SourceError
from reconciler.model.revision import shorten_id
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings
from reconciler.times import format_iso_time

MIN_PREFIX = 4
"""The shortest accepted prefix of a digest, in characters, as in Git."""
MOST_REASON = 500
"""The most characters of a reason."""


def record_approval(settings: Settings, digest: str, by: str) -> str:
    """Record that ``by`` approves the held steps of the plan ``digest``; returns the message for the operator.

    ``digest`` is the digest of a whole plan or of its held steps alone, or a prefix of at least ``MIN_PREFIX``
    characters. The commit to which a source was rewritten is approved in the same way: its history is followed from
    there. Raises RefusedError if no recorded or current plan matches, if several match, or if none of its steps waits,
    or if the settings want another person than ``by``; RecordsError if there are no records.
    """
    with _open_records(settings, digest) as records:
        digests = records.approvals.hold_digests(digest)
        if not digests and (message := _accept_rewrite(settings, records, digest, by)):
            return message
        hold = _find_hold(settings, records, digest, digests)
        if settings.approval_four_eyes:
            _check_approver(settings, records, hold, by)
        now = SystemClock().now()
        ends = now + settings.approval_lasts
        with records.transaction():
            records.approvals.approve(hold, by, ends)
            message = f"{by} approved {shorten_id(_get_plan_digest(hold))}, until {format_iso_time(ends)}"
            records.events.append(source_target(hold.rpartition("/")[0]), Reason.APPROVED, message)
        return f"approved {shorten_id(_get_plan_digest(hold))} as {by}, until {format_iso_time(ends)}"


def record_refusal(settings: Settings, digest: str, by: str, reason: str) -> str:
    """Record that ``by`` refuses the held steps of the plan ``digest``, for a ``reason`` that others read.

    They wait, and count no longer as what waits for an approval; an approval that was given before is void. Steps that
    are other than these wait anew. Returns the message for the operator. Raises RefusedError and RecordsError as
    ``record_approval`` does.
    """
    reason = " ".join(reason.split())
    if len(reason) > MOST_REASON:
        raise RefusedError(f"the reason has more than {MOST_REASON} characters")
    with _open_records(settings, digest) as records:
        recorded = records.approvals.hold_digests(digest) or records.approvals.list_approved(digest)
        hold = _find_hold(settings, records, digest, recorded)
        short = shorten_id(_get_plan_digest(hold))
        with records.transaction():
            records.approvals.refuse(hold, by, reason)
            message = f"{by} refused {short}{f': {reason}' if reason else ''}"
            records.events.append(source_target(hold.rpartition("/")[0]), Reason.APPROVAL_REFUSED, message)
        return f"refused {short} as {by}"


@contextmanager
def _open_records(settings: Settings, digest: str) -> Iterator[Records]:
    """The records, for a decision about ``digest``. Raises RefusedError and RecordsError."""
    if len(digest) < MIN_PREFIX:
        raise RefusedError(f"{digest!r} is too short; write the first {MIN_PREFIX} characters of a digest, or more")
    path = settings.state / FILE
    Records.open(path, read_only=True).close()  # raises if there are none, so none are created
    with closing(Records.open(path)) as records:
        yield records


def _find_hold(settings: Settings, records: Records, digest: str, recorded: list[str]) -> str:
    """The held steps of ``digest``, as ``SOURCE/DIGEST``: those of ``recorded`` plans, else of today's.

    Raises RefusedError if none waits, or several match.
    """
    waiting = [text for text in recorded or _holds_of_today(settings, records, digest) if text]
    if len(waiting) > 1:
        raise RefusedError(
            f"several digests begin with {digest}: {', '.join(map(_get_plan_digest, waiting))}; write more of it"
        )
    if not waiting:
        raise RefusedError(f"nothing in the plan {digest} waits for approval")
    return waiting[0]


def _accept_rewrite(settings: Settings, records: Records, prefix: str, by: str) -> str:
    """Follow a source to the commit ``prefix`` of its rewritten history; returns the message, "" if none was rewritten.

    A later commit has to contain this one. Raises RefusedError.
    """
    from reconciler.operations.four_eyes import check_rewrite_approver
    from reconciler.pipeline.source_pipeline import SourcePipeline

    done = []
    for source in settings.sources:
        pipeline = SourcePipeline(settings, source, records, SystemClock())
        revision = pipeline.revisions.find_rewritten()
        if revision is None or not revision.commit.startswith(prefix):
            continue
        if settings.approval_four_eyes:
            check_rewrite_approver(pipeline, revision, by)
        with records.transaction():
            pipeline.revisions.accept(revision)
            message = f"{by} accepted the rewritten history of {revision.ref}, from {shorten_id(revision.commit)} on"
            records.events.append(source_target(source.name), Reason.APPROVED, message)
        done.append(f"accepted the rewritten history of {source.name}, from {revision.commit[:12]} on, as {by}")
    return "; ".join(done)


def _check_approver(settings: Settings, records: Records, hold: str, by: str) -> None:
    """Raise RefusedError if ``by`` may not approve ``hold``, ``SOURCE/DIGEST``, since they made the change."""
    from reconciler.operations.four_eyes import check_approver  # with the pipeline, which other settings do not need
    from reconciler.pipeline.source_pipeline import SourcePipeline

    name, _, digest = hold.rpartition("/")
    source = next((source for source in settings.sources if source.name == name), None)
    if source is None:
        raise RefusedError(f"the source {name} is not in the settings any more")
    check_approver(SourcePipeline(settings, source, records, SystemClock()), digest, by)


def _get_plan_digest(hold: str) -> str:
    """The digest in ``SOURCE/DIGEST``."""
    return hold.rpartition("/")[2]


def _holds_of_today(settings: Settings, records: Records, prefix: str) -> list[str]:
    """The held steps of the current plans that match, as ``SOURCE/DIGEST``. Raises RefusedError if none does."""
    from reconciler.pipeline.source_pipeline import SourcePipeline  # digests of recorded plans need none

    texts: list[str] = []
    clock = SystemClock()
    waiting: list[str] = []
    for source in settings.sources:
        try:
            plan = SourcePipeline(settings, source, records, clock).plan_revision().plan
        except SourceError:
            continue
        if plan is None:
            continue
        if any(text.startswith(prefix) for text in (plan.digest, plan.hold_digest)):
            texts.append(plan.hold_digest and f"{source.name}/{plan.hold_digest}")
        waiting += [plan.hold_digest] if plan.hold_digest else []
    if texts:
        return texts
    now = f"now waiting: {', '.join(map(shorten_id, waiting))}" if waiting else "nothing waits now"
    raise RefusedError(f"no plan has the digest {prefix}; {now}")
