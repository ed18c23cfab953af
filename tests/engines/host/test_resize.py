"""Only the limits of a workload change: a runtime that can change them keeps its replicas; all else is a rollout."""

from __future__ import annotations

from pathlib import Path

from reconciler.reasons import Reason
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import HostHarness, played


class ResizingRuntime(FakeRuntime):
    """A runtime that changes the limits of running containers."""

    resizes = True


async def apply(host: HostHarness, version: int, memory: str, image: str = "plain", cpu: str = "50m") -> None:
    """Ask for a version with these limits, and wait until only its replica is there."""
    await host.ask(version, image, limits={"memory": memory, "cpu": cpu})
    await host.until(lambda found: [each.version for each in found if each.ready] == [version])


def verbs(host: HostHarness) -> list[str]:
    return [each.verb for each in host.programs.calls]


def test_limits_change_in_the_replicas_that_run(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await apply(host, 1, "64Mi")
        [container_id] = host.programs.places()
        await apply(host, 2, "96Mi", cpu="100m")
        assert verbs(host) == ["start", "resize"]
        [version] = host.versions()
        resources = version.containers["main"]["resources"]
        assert (version.workload, version.ready) == (2, True)
        assert (resources["cpu"], resources["memory"]) == ("100m", "96Mi")
        await host.restart()
        await apply(host, 3, "128Mi")
        assert host.programs.places() == [container_id]
        assert verbs(host) == ["start", "resize", "resize"]
        host.programs.end(container_id, 1)
        await host.until(lambda found: all(each.ready and each.containers[0].restarts for each in found))
        assert host.programs.running[container_id].launch.memory == 128 << 20, "its next start has them too"
        assert host.programs.running[container_id].launch.version == 3

    played(tmp_path, story, ResizingRuntime)


def test_another_image_with_other_limits_is_a_rollout(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await apply(host, 1, "64Mi")
        await apply(host, 2, "96Mi", image="good")
        assert "resize" not in verbs(host)

    played(tmp_path, story, ResizingRuntime)


def test_a_runtime_that_cannot_change_limits_replaces_its_replicas(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await apply(host, 1, "64Mi")
        await apply(host, 2, "96Mi")
        assert verbs(host).count("start") == 2

    played(tmp_path, story)


def test_a_replica_that_does_not_fit_into_its_new_limits_is_replaced(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await apply(host, 1, "64Mi")
        [container_id] = host.programs.places()
        host.programs.running[container_id].memory = 50 << 20
        await host.ask(2, limits={"memory": "32Mi", "cpu": "50m"})
        event = await host.event(Reason.WORKLOAD_ERROR)
        assert "its limits cannot change" in event.message
        await host.until(lambda found: [each.version for each in found if each.ready] == [2])
        assert verbs(host).count("start") == 2
        assert host.programs.places() != [container_id]
        [version] = host.versions()
        assert version.message == ""

    played(tmp_path, story, ResizingRuntime)
