"""What people read of a workload on this host: each event and message names what it is about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.autoscaling.decide import MetricReading
from reconciler.engines.host.autoscaling.scaling import Autoscaler
from reconciler.engines.host.decisions.actions import Start, StopReplica
from reconciler.engines.host.decisions.availability import exit_words
from reconciler.engines.host.decisions.decide import decide_actions
from reconciler.engines.host.decisions.replica import Ended, Replica
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.decisions.transitions import (
    apply_action,
    container_exited,
    new_replica,
    readiness_changed,
)
from reconciler.engines.host.reading.snapshot import state_of
from reconciler.engines.host.runtimes.protocol import ContainerId, ExecResult
from reconciler.engines.host.status import StatusContext, workload_status
from reconciler.engines.protocol import EngineEvent
from reconciler.engines.reading import ReplicaState
from reconciler.engines.workload.deployment import DeploymentTarget
from reconciler.engines.workload.environment import unset_variables
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.engines.workload.status import START_SECONDS, RunningStatus
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Options, read_specification
from reconciler.model.record import Health
from reconciler.planning.plan import Action
from reconciler.reasons import Reason
from reconciler.status.progress import unhealthy_resources
from tests.engines.host.decisions.reading import PROBE
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import WEB, HostHarness, played
from tests.engines.host.provisioning.kit import around, body, spec_of, variables
from tests.engines.host.signals import RecordedSignals
from tests.engines.host.simulation.controller_simulation import ControllerSimulation
from tests.engines.host.simulation.schedule import Schedule
from tests.support.clock import FakeClock
from tests.support.plans import plan, step

KEY = Key.parse(WEB)
ONE = WorkloadSpec(KEY, Type.STANDARD, 1, "d", "s", 1, (ContainerSpec("main", readiness=PROBE),), Options())
REFUSED = "the readiness probe failed: connection refused"


def health_at(spec: WorkloadSpec, replicas: Sequence[Replica], now: float) -> Health:
    """The health that the engine shows."""
    place = DeploymentTarget("here", "alias", 1, "example.net")
    return workload_status(spec, replicas, StatusContext(place, now, 0.0))[0]


def started() -> Replica:
    """A replica whose container began at 10."""
    return apply_action(new_replica(ONE, -1, "web-a", 10.0, ""), Start("web-a", "main"), 10.0)


def test_a_slow_first_start_is_loading_until_it_has_taken_a_minute() -> None:
    slow = readiness_changed(started(), "main", False, 12.0, REFUSED)
    ends = 10.0 + START_SECONDS
    assert health_at(ONE, [slow], ends - 1) is Health.LOADING
    assert state_of(slow, ends - 1) is ReplicaState.LOADING
    assert decide_actions(ONE, [slow], ends - 1, Timing()).wake == ends
    assert health_at(ONE, [slow], ends) is Health.UNHEALTHY
    assert state_of(slow, ends) is ReplicaState.NOT_READY
    assert decide_actions(ONE, [slow], ends, Timing()).wake is None


def test_a_replica_that_was_ready_or_has_ended_is_unhealthy_at_once() -> None:
    fell = readiness_changed(readiness_changed(started(), "main", True, 12.0, ""), "main", False, 13.0, REFUSED)
    assert health_at(ONE, [fell], 14.0) is Health.UNHEALTHY
    assert health_at(ONE, [container_exited(started(), "main", 12.0, 1, "Error", "")], 14.0) is Health.UNHEALTHY


def test_a_replica_that_ends_as_it_should_fails_nothing() -> None:
    suspended = msgspec.structs.replace(ONE, replicas=0, suspended=True)
    ready = readiness_changed(started(), "main", True, 12.0, "")
    ended = container_exited(
        apply_action(ready, StopReplica("web-a", "Suspended"), 20.0), "main", 30.0, 143, "Error", ""
    )
    assert health_at(suspended, [ended], 30.0) is Health.LOADING
    assert health_at(suspended, [], 30.0) is Health.HEALTHY


def test_the_message_of_an_end_has_code_and_reason() -> None:
    assert exit_words(Ended(137, 1.0, "OutOfMemory")) == "ended with 137 (OutOfMemory)"


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        ("crash", "ended with 1 (Error)"),
        ("dead", "ended with 143 (LivenessFailed): the liveness probe failed: HTTP 503"),
    ],
)
async def test_the_event_of_an_end_has_code_and_reason(tmp_path: Path, verb: str, message: str) -> None:
    async def story() -> list[EngineEvent]:
        simulation = ControllerSimulation(tmp_path, Schedule())
        await simulation.open()
        await simulation.happen("push", "good")
        await simulation.run(10.0)
        await simulation.happen(verb, "0")
        await simulation.run(1.0)
        await simulation.close()
        return simulation.news

    [event] = [each for each in await story() if each.reason == "ContainerEnded"]
    assert event.message.endswith(f": main {message}")


class FailingHooks(FakeRuntime):
    """Every hook ends with 7."""

    async def exec(self, place: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """Fail."""
        return ExecResult(7, "")


def test_a_failed_post_start_hook_is_an_event_and_is_shown_with_its_replica(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.ask(1, lifecycle={"postStart": {"exec": {"command": ["greet"]}}})
        await host.until(lambda found: [each.ready for each in found] == [True])
        event = await host.event("PostStartFailed")
        assert (event.reason.event_type, str(event.key)) == ("Warning", WEB)
        assert event.message.endswith(": the postStart hook of main ended with 7; its output is in the logs")
        [seen] = await host.engine.observe()
        status = msgspec.convert(msgspec.json.decode(seen.state)["status"], RunningStatus)
        assert status.replicas[0].message == "the postStart hook ended with 7; its output is in the logs"
        assert seen.health is Health.HEALTHY

    played(tmp_path, story, FailingHooks)


class UnremovableRuntime(FakeRuntime):
    """What is left of a replica stays."""

    async def remove(self, key: Key, replica: str) -> None:
        """Fail."""
        raise EngineError("its files cannot be removed", reason=Reason.PERMISSION_DENIED)


def test_a_delete_that_cannot_finish_reports_the_reason_while_it_waits(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.apply(1)
        assert await host.delete() == {WEB: "waiting/Terminating"}
        await host.event("WorkloadError")
        await host.record()
        [waits] = unhealthy_resources(host.records)
        assert waits.message == "replicas are ending: PermissionDenied: its files cannot be removed"
        [outcome] = await host.run(plan(step(WEB, action=Action.DELETE, engine="host")))
        assert outcome.message == "replicas are ending at here: PermissionDenied: its files cannot be removed"

    played(tmp_path, story, UnremovableRuntime)


class ScriptedMetric:
    """A metric whose value is written down."""

    value = 0.0
    metrics = frozenset({"cpu"})

    def read(self, wanted: WorkloadSpec, counted: Collection[str], seconds: float, /) -> MetricReading | None:
        """The value, as of now."""
        return MetricReading(self.value, 3, self.clock.monotonic())

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock


def scaled_by_cpu() -> ReplicaTemplate:
    """A workload that is scaled to a cpu of 50 %."""
    scale = {"metric": "cpu", "target": 50, "minScale": 1, "maxScale": 3}
    written = body(
        {
            "type": "standard",
            "containers": [{"name": "main", "image": "a:1"}],
            "defaultOptions": {"autoscaling": scale, "capacityAI": False},
        }
    )
    spec = read_specification(written)
    applied = AppliedWorkload(KEY, "here", spec, 1, "digest")
    return ReplicaTemplate(workload_spec(applied, "hash"), spec, around())


async def test_a_workload_is_wanted_again_only_when_its_number_of_replicas_changes() -> None:
    async def story() -> list[bool]:
        clock, changes = FakeClock(), list[bool]()
        source, template = ScriptedMetric(clock), scaled_by_cpu()
        scaler = Autoscaler(source, clock, RecordedSignals())
        for source.value in (50.0, 50.0, 140.0, 140.0):
            changes.append(scaler.needs_change(template, [started()]))
            scaler.spec_at_scale(template, [started()])
            await clock.advance(15.0)
        changes.append(scaler.needs_change(scaled_by_cpu(), [started()]))
        return changes

    # The first time nothing was decided yet, and at last it is another version.
    assert await story() == [True, False, True, False, True]


async def test_the_event_of_scaling_names_replicas_and_metric() -> None:
    async def story() -> list[EngineEvent]:
        clock, events = FakeClock(), list[EngineEvent]()
        source = ScriptedMetric(clock)
        scaler, template = Autoscaler(source, clock, RecordedSignals(events)), scaled_by_cpu()
        for source.value in (50.0, 140.0, 140.0, 10.0, *[1.0] * 30):
            scaler.spec_at_scale(template, [started()])
            scaler.spec_at_scale(template, [started()])
            await clock.advance(15.0)
        return events

    events = await story()
    assert {(each.reason.event_type, each.reason, str(each.key)) for each in events} == {("Normal", "Scaled", WEB)}
    assert events[0].message == "from 1 to 3 replicas: cpu is 140, its target 50"
    assert events[-1].message == "from 3 to 1 replicas: cpu is 1, its target 50"


@pytest.mark.parametrize(
    ("container", "gvc", "count"),
    [
        ({}, {}, 0),
        ({"env": [{"name": "API", "value": "$(PLATFORM_ENDPOINT)/org"}]}, {}, 1),
        ({"command": "sh", "args": ["-c", "curl $PLATFORM_ENDPOINT"]}, {}, 1),
        ({"inheritEnv": True}, {"API": "$(PLATFORM_ENDPOINT)"}, 1),
        ({}, {"API": "$(PLATFORM_ENDPOINT)"}, 0),
    ],
)
def test_the_address_of_the_api_is_not_enforced_where_it_is_used(
    container: dict[str, object], gvc: dict[str, str], count: int
) -> None:
    context = around(gvc_env=variables(gvc))
    spec = spec_of({"name": "main", **container})
    sentences = list(unset_variables(spec, context))
    assert len(sentences) == count
    assert all("PLATFORM_ENDPOINT is not set in the container main" in each for each in sentences)
    assert list(unset_variables(spec, msgspec.structs.replace(context, api="http://127.0.0.1"))) == []
