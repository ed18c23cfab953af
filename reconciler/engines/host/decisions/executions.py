"""What to do about the replicas of a cron workload now: each is an execution with a run to its end; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.engines.host.decisions.actions import Action, Create, Decision, StopReplica, find_soonest_time
from reconciler.engines.host.decisions.execution_log import ExecutionLog
from reconciler.engines.host.decisions.execution_results import is_finished, needs_restart
from reconciler.engines.host.decisions.replica import Phase, Replica
from reconciler.engines.host.decisions.restarts import restart_policy
from reconciler.engines.host.decisions.termination import termination_steps
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.status import ExecutionState
from reconciler.reasons import Reason


def decide_executions(
    spec: WorkloadSpec, log: ExecutionLog, replicas: Sequence[Replica], now: float, timing: Timing
) -> Decision:
    """The actions that are due on the executions in ``log``, and when time alone brings the next (monotonic seconds).

    ``log`` has the results of ``replicas`` and what is due now (cron.py). An execution keeps the version, the deadline
    and the restart policy that it began with.
    """
    parts = [_decide_execution(replica, log, now, timing) for replica in replicas]
    parts.append(Decision(tuple(_list_creations(spec, log, replicas))))
    return Decision(
        tuple(act for part in parts for act in part.actions), find_soonest_time(*(part.wake for part in parts))
    )


def _decide_execution(replica: Replica, log: ExecutionLog, now: float, timing: Timing) -> Decision:
    if replica.ending is not None:
        return termination_steps(replica, now, timing)
    entry = next((entry for entry in log.entries if entry.name == replica.name), None)
    if entry is None or entry.state is not ExecutionState.ACTIVE:
        return Decision((StopReplica(replica.name, _get_stop_reason(entry.reason if entry is not None else "")),))
    deadline = replica.run.deadline if replica.run is not None else None
    if deadline is not None and replica.created + deadline <= now:
        return Decision((StopReplica(replica.name, Reason.DEADLINE_EXCEEDED),))
    policy = Decision() if is_finished(replica) else _start_containers(replica, now, timing)
    return Decision(
        policy.actions, find_soonest_time(policy.wake, replica.created + deadline if deadline is not None else None)
    )


def _start_containers(replica: Replica, now: float, timing: Timing) -> Decision:
    """Start the containers that wait, and those again that failed, as the restart policy has it."""
    # The policy restarts every ended container. Those of an execution may have ended for good.
    done = {
        container.name
        for container in replica.containers
        if container.phase is Phase.ENDED and not needs_restart(replica, container.name)
    }
    policy = restart_policy(replica, now, timing)
    return Decision(tuple(act for act in policy.actions if getattr(act, "container", "") not in done), policy.wake)


def _list_creations(spec: WorkloadSpec, log: ExecutionLog, replicas: Sequence[Replica]) -> Iterable[Action]:
    """Create what is recorded and was not created; an execution that replaces another waits for its end."""
    if spec.pending:
        return
    existing = {replica.name for replica in replicas}
    ending = any(replica.ending is not None and replica.reason == Reason.REPLACED for replica in replicas)
    for entry in log.active:
        # An execution on demand runs beside any other one, so it waits for no end.
        if entry.name not in existing and (entry.on_demand or not ending):
            yield Create(execution=entry.name)


def _get_stop_reason(text: str) -> Reason:
    return Reason.REPLACED if text == Reason.REPLACED else Reason.COMPLETED
