"""Failures of a workload's actions: each action has its own error, event and backoff."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from reconciler.clock import Clock
from reconciler.engines.execution.retry import RetryPolicy, longest_wait
from reconciler.engines.host.decisions.actions import Action, Create, Remove, Resize, StopReplica, find_soonest_time

ERROR_RETRY_SECONDS = (1.0, 30.0)
"""Seconds until a failed action is tried again: the first and the longest wait."""

DECIDE, STORE, ENDPOINTS, EXECUTIONS = "decide", "store", "endpoints", "executions"
"""Work of each turn besides the actions: decide, write the files of replicas, of endpoints and of executions."""


class ActionError(msgspec.Struct, frozen=True):
    """The last failure of an action: ``retry_at`` is when it is tried again, ``failures`` counts them in a row.

    It is no failure of the workload if it ``waits`` for what someone asked for.
    """

    message: str
    retry_at: float
    failures: int
    waits: bool = False


class ActionErrors:
    """The failures of one workload, by action name. ``report`` is called once with each new message."""

    def __init__(self, clock: Clock, report: Callable[[str], None], changed: Callable[[], None]) -> None:
        self._clock = clock
        self._report = report
        self._changed = changed
        self._errors: dict[str, ActionError] = {}

    @property
    def message(self) -> str:
        """All current failures, for status; "" if there are none."""
        action_errors = (action_error for _, action_error in sorted(self._errors.items()) if not action_error.waits)
        return "; ".join(dict.fromkeys(action_error.message for action_error in action_errors))

    def is_due(self, name: str) -> bool:
        """Whether the action may be tried now."""
        error = self._errors.get(name)
        return error is None or error.retry_at <= self._clock.monotonic()

    def next_due(self) -> float | None:
        """The time of the next retry; None if no action has failed."""
        return find_soonest_time(*(error.retry_at for error in self._errors.values()))

    def record_failure(self, name: str, message: str) -> None:
        """Record that an action failed: it waits for its next try and delays no other action."""
        if self._record(name, message, waits=False):
            self._report(message)

    def record_wait(self, name: str, message: str) -> bool:
        """Record that an action waits for what someone asked for; returns whether that is news."""
        return self._record(name, message, waits=True)

    def _record(self, name: str, message: str, *, waits: bool) -> bool:
        before = self._errors.get(name)
        failures = before.failures + 1 if before is not None else 1
        wait = longest_wait(RetryPolicy(*ERROR_RETRY_SECONDS), failures)
        messages = {error.message for error in self._errors.values()}
        self._errors[name] = ActionError(message, self._clock.monotonic() + wait, failures, waits)
        if message not in messages:
            self._changed()
        return message not in messages

    def record_success(self, name: str) -> None:
        """Record that an action succeeded."""
        if self._errors.pop(name, None) is not None:
            self._changed()

    def retry_now(self, kind: str) -> bool:
        """Make the failed actions of a kind due; False if there is none."""
        failed = [name for name in self._errors if name.partition(" ")[0] == kind]
        for name in failed:
            self._errors[name] = msgspec.structs.replace(self._errors[name], retry_at=self._clock.monotonic())
        return bool(failed)

    def retain(self, names: Collection[str]) -> None:
        """Forget the failures of actions that are no longer wanted: all but ``names`` and the work of each turn."""
        for name in self._errors.keys() - set(names) - {DECIDE, STORE, ENDPOINTS, EXECUTIONS}:
            self.record_success(name)


def action_name(act: Action) -> str:
    """The name under which failures of ``act`` are recorded: equal for the same action on the same container."""
    if isinstance(act, Create):
        return f"create {act.execution or act.index}"
    if isinstance(act, Resize | StopReplica | Remove):
        return f"{type(act).__name__} {act.replica}"
    return f"{type(act).__name__} {act.replica}/{act.container}"
