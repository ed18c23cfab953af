"""An operator's approval: from a digest somebody read to the held steps that it lets go."""

from __future__ import annotations

from reconciler.clock import SystemClock, iso
from reconciler.errors import RefusedError, SourceError
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.records.store import FILE, Records
from reconciler.records.tables.events import Event
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings


def approve(settings: Settings, digest: str, by: str) -> str:
    """Record that ``by`` lets the held steps of the plan ``digest`` go; returns what to tell the operator.

    ``digest`` is that of a whole plan or of its held steps alone. Raises RefusedError where no such plan is known
    and none of today's plans has it, or where nothing in it waits; RecordsError where there are no records.
    """
    path = settings.state / FILE
    Records.open(path, read_only=True).close()  # where there are none, none are made
    records = Records.open(path)
    try:
        held = records.approvals.held_of(digest)
        if held is None:
            held = _held_today(settings, records, digest)
        if not held:
            raise RefusedError(f"nothing in the plan {digest} waits for approval")
        now = SystemClock().now()
        ends = now + settings.approval_lasts
        with records.transaction():
            records.approvals.approve(held, by, ends)
            message = f"{by} lets {held.rpartition('/')[2]} go, until {iso(ends)}"
            records.events.add_many(
                [Event(now, 0, source_target(held.rpartition("/")[0]), "", "Normal", "Approved", message)]
            )
        return f"approved {held.rpartition('/')[2]} as {by}, until {iso(ends)}"
    finally:
        records.close()


def _held_today(settings: Settings, records: Records, digest: str) -> str:
    clock = SystemClock()
    waiting: list[str] = []
    for source in settings.sources:
        try:
            plan = SourcePipeline(settings, source, records, clock).plan_revision().plan
        except SourceError:
            continue
        if plan is None:
            continue
        if digest in (plan.digest, plan.held):
            return plan.held and f"{source.name}/{plan.held}"
        waiting += [plan.held] if plan.held else []
    now = f"what waits now is {' and '.join(waiting)}" if waiting else "nothing waits now"
    raise RefusedError(f"no plan has the digest {digest}; {now}")
