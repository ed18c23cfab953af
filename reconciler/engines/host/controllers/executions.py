"""The executions of one cron workload: their log in memory and on disk, and the decisions on it.

The log is durable before an execution that it names starts. What starts afterwards is in the files of replicas.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from reconciler.engines.host.controllers.context import ControllerContext
from reconciler.engines.host.decisions.actions import Create, Decision, Remove, find_soonest_time
from reconciler.engines.host.decisions.cron import add_due, add_run, next_due, record_start
from reconciler.engines.host.decisions.execution_log import Events, ExecutionEntry, ExecutionLog
from reconciler.engines.host.decisions.execution_results import execution_conditions, record_results
from reconciler.engines.host.decisions.executions import decide_executions
from reconciler.engines.host.decisions.replica import ExecutionRun, Replica
from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.engines.workload.deployment import Execution
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.status import IMAGE_SECONDS, DeploymentCondition, ExecutionState
from reconciler.engines.workload_commands import ContainerOverride
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Job
from reconciler.times import format_iso_time

CHECK_SECONDS = 60.0
"""A longer wait for a due time or a deadline is halved: the wall clock drifts from the monotonic one meanwhile."""

FOLDER = "executions"


class Executions:
    """The log of the workload ``key``; it is read from its file when it is needed first."""

    def __init__(self, key: Key, context: ControllerContext) -> None:
        self._key = key
        self._context = context
        self._boot = context.store.boot
        self._path = log_path(context.store.root, key)
        self._log: ExecutionLog | None = None

    @property
    def log(self) -> ExecutionLog:
        """The log; empty before the first execution, and if its file cannot be read."""
        if self._log is None:
            try:
                self._log = msgspec.json.decode(self._path.read_bytes(), type=ExecutionLog)
            except (OSError, msgspec.DecodeError):
                self._log = ExecutionLog()
        return self._log

    def decide(self, spec: WorkloadSpec, replicas: Sequence[Replica]) -> tuple[Decision, EngineError | None]:
        """Record results and what is due, durably, and decide; with the error if the log cannot be written.

        What could not be recorded does not start, and executions past their deadline end all the same.
        """
        clock = self._context.clock
        wall, now, limit = clock.now(), clock.monotonic(), (spec.job or Job()).history_limit
        log, failures = record_results(self.log, limit, replicas, wall, self._boot, spec.image_fault)
        events: Events = []
        if self._context.signals.runs_schedules:
            log, events = add_due(log, spec, wall, self._boot, replicas)
        failure = self._try_write(log, [*failures, *events])
        decision = decide_executions(spec, self.log, replicas, now, self._context.timing)
        if failure is not None:
            # An execution that is removed before its end is recorded would start again.
            remaining = (act for act in decision.actions if not isinstance(act, Create | Remove))
            decision = Decision(tuple(remaining), decision.wake)
        due = next_due(log) if self._context.signals.runs_schedules else None
        if spec.image_fault is not None and failure is None:
            names, patience = {replica.name for replica in replicas}, 0.0 if spec.image_fault.final else IMAGE_SECONDS
            due = find_soonest_time(
                due,
                *(
                    execution_entry.started + patience
                    for execution_entry in self.log.active
                    if execution_entry.name not in names
                ),
            )
        wake = find_soonest_time(decision.wake, None if due is None else now + max(due - wall, 0.0))
        return Decision(decision.actions, None if wake is None else _check_at(wake, now)), failure

    def run(
        self, spec: WorkloadSpec, overrides: tuple[ContainerOverride, ...], limit: int, command_id: str = ""
    ) -> Execution:
        """Record an execution on demand; the next decision starts it. Raises EngineError if it cannot be recorded.

        A command that is performed again after a crash has its execution already.
        """
        execution_entry = next(
            (entry for entry in self.log.entries if command_id and entry.command_id == command_id), None
        )
        if execution_entry is not None:
            return _convert_entry(execution_entry)
        names = {entry.name for entry in self.log.entries}
        name, wall = self._context.replica_name(self._key, -1, names), self._context.clock.now()
        entry = ExecutionEntry(
            name,
            spec.version,
            wall,
            boot=self._boot,
            on_demand=True,
            overrides=overrides,
            command_id=command_id,
            due=wall,
        )
        self._write(add_run(self.log, entry, limit), [])
        return _convert_entry(entry)

    def begin(self, replica: Replica, spec: WorkloadSpec) -> Replica:
        """``replica``, newly made, with what its execution begins with."""
        job, entry = spec.job or Job(), next((entry for entry in self.log.entries if entry.name == replica.name), None)
        overrides = entry.overrides if entry is not None else ()
        return replace(
            replica, run=ExecutionRun(job.active_deadline_seconds, job.restart_policy == "OnFailure", overrides)
        )

    def record_start(self, replica: Replica) -> None:
        """Record the version of a new execution, and report a late start. Raises EngineError."""
        self._write(*record_start(self.log, replica.name, replica.version, self._context.clock.now()))

    def status(self) -> tuple[Execution, ...]:
        """The executions for the status of the deployment, oldest first."""
        return tuple(map(_convert_entry, self.log.entries))

    def conditions(self) -> tuple[DeploymentCondition, ...]:
        """What is wrong with the executions."""
        return execution_conditions(self.log)

    def _try_write(self, log: ExecutionLog, events: Events) -> EngineError | None:
        try:
            self._write(log, events)
        except EngineError as error:
            return error
        return None

    def _write(self, log: ExecutionLog, events: Events) -> None:
        if log != self.log:
            write_atomic(self._path, msgspec.json.encode(log), 0o600)
            _flush_file(self._path)
            self._log = log
            self._context.signals.report_change(self._key)
        for reason, message in events:
            self._context.signals.report(self._key, reason, message)


def _check_at(wake: float, now: float) -> float:
    """When to check the clock before ``wake``: few times a day, and closely at the end."""
    return min(wake, now + max(CHECK_SECONDS, (wake - now) / 2))


def log_path(replicas: Path, key: Key) -> Path:
    """The file of the log of ``key``, beside the folder of replica files."""
    return replicas.parent / FOLDER / key.gvc / f"{key.name}.json"


def remove_logs(replicas: Path, recorded: Collection[Key]) -> None:
    """Remove the logs of all workloads but ``recorded``: a new one of the same name has missed nothing."""
    for path in list_paths(replicas.parent / FOLDER, "*/*.json"):
        if Key(Kind.WORKLOAD, path.parent.name, path.stem) not in recorded:
            path.unlink(missing_ok=True)


def _flush_file(path: Path) -> None:
    """Make a written file and its name durable: a power cut must not let an execution start again."""
    for target in (path, path.parent):
        try:
            opened = os.open(target, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
        except OSError as error:
            raise write_error(f"{target.name} cannot be written", error) from None


def _convert_entry(entry: ExecutionEntry) -> Execution:
    """``entry`` in the shape of docs/platform/workload.md#deployments."""
    ended = format_iso_time(entry.completed) if entry.completed else ""
    kind = "Complete" if entry.state is ExecutionState.SUCCESS else "Failed"
    condition = {
        "type": kind,
        "status": "True",
        "message": entry.message,
        "reason": entry.reason,
        "lastTransitionTime": ended,
    }
    conditions = (condition,) if ended else ()
    return Execution(
        entry.name, entry.version, str(entry.state), format_iso_time(entry.started), ended, conditions, entry.name
    )
