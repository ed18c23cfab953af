"""A location gets another runtime: its workloads move there by a rollout, and nothing runs twice or not at all."""

from __future__ import annotations

from pathlib import Path

from reconciler.engines.host.runtimes.handover import HandoverRuntime
from reconciler.engines.host.runtimes.plugins import runtime_names, runtime_plugin, runtimes_in_use
from tests.engines.host.fake import FakeRuntime, Programs
from tests.engines.host.kit import Host, played


class ImageRuntime(FakeRuntime):
    """Another runtime, with programs of its own."""

    name = "images"


def hand_over(host: Host) -> Programs:
    """Give the location another runtime, whose programs are returned; the daemon starts with it at the next restart."""
    fresh = Programs(host.time)
    former = host.programs

    def made(_: Programs) -> FakeRuntime:
        return HandoverRuntime(ImageRuntime(fresh), [FakeRuntime(former)])  # type: ignore[return-value]

    host._runtime = made  # type: ignore[assignment]
    return fresh


def test_a_change_of_runtime_is_a_rollout(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await host.apply(1)
        [old] = host.programs.places()
        fresh = hand_over(host)
        await host.restart()
        fewest = 1
        for _ in range(120):
            await host.time.advance(1.0)
            fewest = min(fewest, len(host.programs.places()) + len(fresh.places()))
            if not host.programs.running:
                break
        assert fewest == 1, "a replica serves at any moment"
        [new] = fresh.places()
        assert new.replica != old.replica
        assert [each.verb for each in host.programs.told] == ["start", "terminate", "kill", "remove"]
        assert [each.verb for each in fresh.told] == ["start"]

    played(tmp_path, story)


def test_a_workload_that_is_deleted_during_the_change_ends_in_both_runtimes(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await host.apply(1)
        fresh = hand_over(host)
        await host.restart()
        while "applied" not in set((await host.delete()).values()):
            await host.time.advance(5.0)
        assert not host.programs.running
        assert not fresh.running

    played(tmp_path, story)


def test_a_runtime_is_in_use_where_it_has_left_containers(tmp_path: Path) -> None:
    assert runtimes_in_use(tmp_path) == []
    assert "process" in runtime_names()
    assert all(runtime_plugin(name).uses_images == (name != "process") for name in runtime_names())
