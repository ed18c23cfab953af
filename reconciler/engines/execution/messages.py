"""The texts for outcomes of steps: reasons for conditions, messages for people. They name paths, never values."""

from __future__ import annotations

from reconciler.engines.protocol import Outcome, Result
from reconciler.errors import EngineError, InternalError
from reconciler.model.revision import shorten_id
from reconciler.planning.plan import Action, Hold, Step, StepId
from reconciler.reasons import Reason

HOLD_WORDS = {
    Hold.BUDGET: "the run has more deletes than its budget allows",
    Hold.HOURLY: "the runs of this hour have more deletes than their budget allows",
    Hold.VOLUMES: "it deletes volumes and their data",
    Hold.RENAME: "it replaces volumes whose delete waits",
    Hold.REPLACE: "it deletes the resource and creates it again",
    Hold.ALWAYS: "the settings require an approval of every step",
    Hold.DELETES: "the settings require an approval of every delete",
}

APPLIED_REASON = {
    Action.CREATE: Reason.CREATED,
    Action.UPDATE: Reason.UPDATED,
    Action.REPLACE: Reason.REPLACED,
    Action.DELETE: Reason.DELETED,
}

_SHOWN_PATHS = 3


def applied_message(step: Step) -> str:
    """The message of the event for an applied step."""
    done = APPLIED_REASON[step.action].lower()
    suffix = f" at {step.location}" if step.location else ""
    if step.action is Action.DELETE:
        return f"{done}{suffix}"
    text = f"{done}{suffix}, version {step.version}"
    paths = [change.path for change in step.changes]
    if step.action is Action.CREATE or not paths:
        return text
    more = f" and {len(paths) - _SHOWN_PATHS} more" if len(paths) > _SHOWN_PATHS else ""
    return f"{text}: {', '.join(paths[:_SHOWN_PATHS])}{more}"


def failed_outcome(step_id: StepId, error: EngineError) -> Outcome:
    """The outcome of a step that its engine rejected or failed."""
    return Outcome(step_id, Result.FAILED, error.reason, str(error), retry=error.retry)


def bug_outcome(step_id: StepId, engine: str, bug: InternalError) -> Outcome:
    """The outcome of a step whose engine has a bug."""
    return Outcome(step_id, Result.FAILED, bug.reason, f"the engine {engine} met {bug}")


def hold_outcome(step: Step, digest: str, volumes: str = "", refusal: str = "") -> Outcome:
    """The outcome of a step that is suspended or requires an approval; ``volumes`` are what it would delete.

    ``refusal`` says who refused it, "" if nobody did.
    """
    if step.hold is Hold.SUSPENDED:
        message = f"suspended; to continue: reconciler resume {step.key}"
        return Outcome(step.id, Result.WAITING, Reason.SUSPENDED, message)
    if refusal:
        message = f"{refusal}; waits for another commit, or an approval: reconciler approve {shorten_id(digest)}"
        return Outcome(step.id, Result.WAITING, Reason.APPROVAL_REFUSED, message)
    until = f" (the budget allows more at {step.hold_until})" if step.hold_until else ""
    words = HOLD_WORDS[step.hold] + (f" ({volumes})" if volumes else "")
    message = f"waits for approval, since {words}{until}: reconciler approve {shorten_id(digest)}"
    return Outcome(step.id, Result.WAITING, Reason.APPROVAL_REQUIRED, message)


def blocked_outcome(step: Step, cause: Step, result: Result) -> Outcome:
    """The outcome of a step that waits for ``cause``, which was not applied."""
    if result is Result.SKIPPED:
        return Outcome(step.id, result, Reason.DEPENDENCY_FAILED, f"waits for {cause.id}, which could not be applied")
    return Outcome(step.id, result, Reason.DEPENDENCY_WAITING, f"waits for {cause.id}, which waits too")


def not_healthy_outcome(step: Step, key: str) -> Outcome:
    """The outcome of a step that requires ``key`` to be Healthy first."""
    return Outcome(step.id, Result.WAITING, Reason.DEPENDENCY_NOT_HEALTHY, f"waits until {key} is Healthy")


def not_bound_outcome(step: Step) -> Outcome:
    """The outcome of a step at a location for which the settings name no engine."""
    message = f"the settings bind no engine to the location {step.location}; add it under `locations`"
    return Outcome(step.id, Result.WAITING, Reason.LOCATION_NOT_BOUND, message)


def disk_full_outcome(step: Step) -> Outcome:
    """The outcome of a step that needs disk space when there is none."""
    message = "not begun: the disk of the state directory is full, and only deletes are carried out; make room there"
    return Outcome(step.id, Result.WAITING, Reason.DISK_FULL, message)


def preempted_outcome(step: Step) -> Outcome:
    """The outcome of a step that has not begun because newer work goes first."""
    return Outcome(
        step.id, Result.WAITING, Reason.PREEMPTED, "not begun: the run ended early because newer work goes first"
    )
