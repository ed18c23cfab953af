"""Converts CronJob and Job to cron workload."""

from __future__ import annotations

from reconciler.convert.drafts import Body, without_empty
from reconciler.convert.kubernetes.bundle import Item
from reconciler.convert.kubernetes.schedules import convert_schedule
from reconciler.convert.tracked_value import TrackedValue

_NEVER = "0 0 1 1 *"
"""The schedule of a suspended workload that has none."""

_UTC = frozenset({"", "UTC", "Etc/UTC"})
_MOST_HISTORY = 10
_LIMITS = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")


def template_of(item: Item) -> TrackedValue:
    """The pod template of ``item``."""
    return _job_spec(item)["template"]


def convert_job(item: Item) -> Body:
    """The ``job`` of a cron workload; that of a Job is suspended, to be run by hand (docs/platform/workload.md#job)."""
    spec = _job_spec(item)
    restart = spec["template"]["spec"]["restartPolicy"]
    deadline = spec["activeDeadlineSeconds"].number()
    body: Body = {"restartPolicy": restart.text(), "activeDeadlineSeconds": deadline}
    if item.kind == "CronJob":
        return {"job": without_empty({**_convert_timing(item.spec), **body})}
    item.root["kind"].add_note(
        "convert-job",
        "a Job becomes a cron workload that runs only on demand",
        "give it a schedule, or start it with the command runCronWorkload",
    )
    return {"job": without_empty({"schedule": _NEVER, "suspend": True, **body})}


def _job_spec(item: Item) -> TrackedValue:
    if item.kind != "CronJob":
        return item.spec
    return item.spec["jobTemplate"]["spec"]


def _convert_timing(spec: TrackedValue) -> Body:
    policy = spec["concurrencyPolicy"]
    chosen = policy.text("Allow")
    if chosen == "Allow":
        (policy if policy else spec).add_note(
            "convert-changed",
            "runs never overlap: a run that is due meanwhile is skipped",
            "concurrencyPolicy is Forbid or Replace here",
        )
        chosen = "Forbid"
    limits = [limit for field in _LIMITS if (limit := spec[field])]
    history = max((limit.number() or 0 for limit in limits), default=None)
    history_limit = None if history is None else min(max(history, 1), _MOST_HISTORY)
    for limit in limits:
        if limit.number() != history_limit:
            message = (
                f"`{limit.at[-1]}` is {limit.number()}; the last {history_limit} runs are kept, however they ended"
            )
            limit.add_note("convert-changed", message, "see job.historyLimit", on_key=True)
    return {
        "schedule": _convert_cron_schedule(spec),
        "concurrencyPolicy": chosen,
        "historyLimit": history_limit,
        "suspend": True if spec["suspend"].flag() else None,
    }


def _convert_cron_schedule(spec: TrackedValue) -> str:
    part = spec["schedule"]
    schedule = convert_schedule(part.require_text())
    zone = schedule.zone or spec["timeZone"].text()
    if zone not in _UTC:
        (spec["timeZone"] or part).add_note(
            "convert-changed", f"schedules are in UTC, not in the time zone {zone}", "change the hours of the schedule"
        )
    if schedule.change:
        part.add_note("convert-changed", schedule.change, "change the schedule")
    if part.text().strip() and not schedule.text:
        part.add_note("convert-malformed", "a schedule has five fields: minute, hour, day of month, month, day of week")
    return schedule.text
