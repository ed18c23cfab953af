"""A replica that is not ready names what it waits for."""

from __future__ import annotations

from reconciler.engines.host.decisions.actions import Start, StopReplica
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.decisions.transitions import apply_action, container_exited, hook_finished, new_replica
from reconciler.engines.host.status import StatusContext, workload_status
from reconciler.engines.workload.deployment import DeploymentTarget
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.engines.workload.status import RunningStatus
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Command, Options

HOOK = Command(("sleep", "1000"))
WANTED = WorkloadSpec(
    Key(Kind.WORKLOAD, "shop", "web"),
    Type.STANDARD,
    1,
    "d",
    "s",
    1,
    (ContainerSpec("main", post_start=HOOK),),
    Options(),
)


def message(replica: Replica) -> str:
    """What is shown of it."""
    _, deployment = workload_status(
        WANTED, [replica], StatusContext(DeploymentTarget("here", "alias", 1, "example.net"), 10.0, 0.0)
    )
    assert isinstance(deployment.status, RunningStatus)
    (shown,) = deployment.status.replicas
    assert shown.ready == replica.ready
    return shown.message


def test_a_clock_that_was_set_is_a_condition() -> None:
    around = StatusContext(DeploymentTarget("here", "alias", 1, "example.net"), 10.0, 0.0, clock_jumped="set by +60 s")
    _, deployment = workload_status(WANTED, [], around)
    assert isinstance(deployment.status, RunningStatus)
    assert [(each.type, each.message) for each in deployment.status.conditions] == [("ClockJumped", "set by +60 s")]


def test_a_metric_without_a_value_is_a_condition() -> None:
    around = StatusContext(
        DeploymentTarget("here", "alias", 1, "example.net"), 10.0, 0.0, scaling_unknown="the metric rps has no value"
    )
    _, deployment = workload_status(WANTED, [], around)
    assert isinstance(deployment.status, RunningStatus)
    [condition] = deployment.status.conditions
    assert (condition.type, condition.reason) == ("ScalingUnknown", "ScalingUnknown")


def test_a_replica_names_what_it_waits_for() -> None:
    started = apply_action(new_replica(WANTED, -1, "web-1", 1.0, ""), Start("web-1", "main"), 1.0)
    assert message(started) == "the postStart hook of main runs"
    assert message(hook_finished(started, "main", "post_start", "", 2.0)) == ""
    assert message(container_exited(started, "main", 2.0, 5, "Error", "")) == "ended with 5 (Error)"
    assert message(apply_action(started, StopReplica("web-1", "Replaced"), 2.0)) == "ending: Replaced"
