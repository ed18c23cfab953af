"""Capacity AI in force: limits follow the use of containers, and never get in its way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from reconciler.engines.host.autoscaling.capacity import Amount
from reconciler.engines.host.autoscaling.limits import next_limits
from reconciler.engines.host.autoscaling.metrics import Used
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.reasons import Reason
from tests.engines.host.kit import WEB, HostHarness, played
from tests.engines.host.test_resize import ResizingRuntime, verbs

MIB = 1 << 20
SPEC = ContainerSpec("main", cpu=500, memory=512 * MIB)
FULL = Amount(500, 512 * MIB)
ADVISED = Amount(50, 100 * MIB)


@pytest.mark.parametrize(
    ("advised", "limits", "used", "expected"),
    [
        pytest.param(ADVISED, FULL, Used(10, 20 * MIB), ADVISED, id="as recommended"),
        pytest.param(ADVISED, FULL, None, FULL, id="nothing becomes lower while the use is not known"),
        pytest.param(ADVISED, FULL, Used(300, 300 * MIB), Amount(345, 345 * MIB), id="never below the use"),
        pytest.param(None, ADVISED, Used(10, 20 * MIB), FULL, id="no recommendation any more"),
        pytest.param(None, ADVISED, None, FULL, id="higher also if the use is not known"),
        pytest.param(ADVISED, Amount(54, 108 * MIB), Used(10, 20 * MIB), Amount(54, 108 * MIB), id="a bit less"),
        pytest.param(ADVISED, ADVISED, Used(46, 20 * MIB), Amount(100, 100 * MIB), id="near to the CPU"),
        pytest.param(ADVISED, ADVISED, Used(10, 91 * MIB), Amount(50, 512 * MIB), id="near to the memory"),
        pytest.param(ADVISED, Amount(400, 512 * MIB), Used(399, 500 * MIB), FULL, id="at most the manifest"),
    ],
)
def test_the_next_limits(advised: Amount | None, limits: Amount, used: Used | None, expected: Amount) -> None:
    assert next_limits(SPEC, advised, limits, used) == expected


async def pass_minutes(host: HostHarness, minutes: int) -> None:
    """Let time pass, sample by sample, and record what is seen then."""
    for _ in range(4 * minutes):
        await host.time.advance(15.0)
        await asyncio.sleep(0)
    await host.record()


async def started(host: HostHarness) -> ContainerId:
    """A container with much more than it uses."""
    await host.ask(1, limits={"memory": "512Mi", "cpu": "500m"})
    await host.until(lambda found: any(each.ready for each in found))
    [place] = host.programs.places()
    host.programs.running[place].memory = 40 * MIB
    return place


def lacking(host: HostHarness) -> str:
    """What the status says is not enforced."""
    [record] = host.records.applied.get(WEB)
    conditions = json.loads(record.state)["status"].get("conditions", [])
    return " ".join(each["message"] for each in conditions if each["type"] == "NotEnforced")


def test_limits_of_running_containers_follow_their_use(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        container_id = await started(host)
        await pass_minutes(host, 50)
        assert verbs(host) == ["start"]
        await pass_minutes(host, 20)
        event = await host.event(Reason.LIMITS_CHANGED)
        assert event.message == f"{container_id.replica}/main: CPU 500m and 512 MiB → CPU 25m and 46 MiB"
        assert verbs(host) == ["start", "resize"]
        # The next daemon knows them, and changes nothing.
        await host.restart()
        await pass_minutes(host, 5)
        assert verbs(host) == ["start", "resize"]
        host.programs.running[container_id].memory = 45 * MIB
        await pass_minutes(host, 1)
        event = await host.event(Reason.LIMITS_CHANGED)
        assert event.message.endswith("CPU 25m and 46 MiB → CPU 25m and 512 MiB")
        assert lacking(host) == ""

    played(tmp_path, story, ResizingRuntime)


def test_memory_that_a_container_lacked_is_not_taken_from_it_again(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        container_id = await started(host)
        await pass_minutes(host, 70)
        assert verbs(host) == ["start", "resize"]
        host.programs.running[container_id].reason = Reason.OUT_OF_MEMORY
        host.programs.end(container_id, 137)
        await host.until(lambda found: all(replica.ready and replica.containers[0].restarts for replica in found))
        host.programs.running[container_id].memory = 40 * MIB
        await pass_minutes(host, 70)
        changes = [event.message for event in host.engine.news() if event.reason == Reason.LIMITS_CHANGED]
        assert changes[-1].endswith("CPU 500m and 512 MiB → CPU 25m and 512 MiB")

    played(tmp_path, story, ResizingRuntime)


def test_a_runtime_that_cannot_change_limits_reports_it(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await started(host)
        await pass_minutes(host, 70)
        expected = "The recommended limits of the container main are not in force: programs get their limits at their"
        assert expected in lacking(host)

    played(tmp_path, story)
