"""A location gets another runtime: its workloads move there by a rollout, and nothing runs twice or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host.plugin import HostPlugin
from reconciler.engines.host.runtimes.handover import HandoverRuntime
from reconciler.engines.host.runtimes.plugins import AUTO, runtime_names, runtime_of, runtime_plugin, runtimes_in_use
from reconciler.engines.host.runtimes.podman.api import client
from reconciler.engines.host.runtimes.protocol import OnEnd
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from reconciler.settings import LocationSettings, PodmanSettings, Settings
from tests.engines.host.fake import FakeRuntime, Programs, QuickClock
from tests.engines.host.kit import HostHarness, played
from tests.engines.host.provisioning.kit import vault
from tests.engines.host.runtimes.podman.kit import KEY
from tests.engines.host.runtimes.podman.test_plugin import wanted


class ImageRuntime(FakeRuntime):
    """Another runtime, with programs of its own."""

    name = "images"


def hand_over(host: HostHarness) -> Programs:
    """Give the location another runtime, whose programs are returned; the daemon starts with it at the next restart."""
    fresh = Programs(host.time)
    former = host.programs

    def made(_: Programs) -> FakeRuntime:
        return HandoverRuntime(ImageRuntime(fresh), [FakeRuntime(former)])  # type: ignore[return-value]

    host._runtime = made  # type: ignore[assignment]
    return fresh


def test_a_change_of_runtime_is_a_rollout(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
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
        assert [each.verb for each in host.programs.calls] == ["start", "terminate", "kill", "remove"]
        assert [each.verb for each in fresh.calls] == ["start"]

    played(tmp_path, story)


def test_a_workload_that_is_deleted_during_the_change_ends_in_both_runtimes(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
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


class FailingRuntime(FakeRuntime):
    """Fails to open as long as it is ``away``; ``open_now`` counts its opens that no close has followed."""

    away = False
    open_now = 0

    async def open(self, on_end: OnEnd) -> None:
        """Open, if it is there."""
        if self.away:
            raise EngineError("it does not answer", reason=Reason.RUNTIME_UNAVAILABLE)
        self.open_now += 1
        await super().open(on_end)

    async def close(self) -> None:
        """Close, also what is not open."""
        self.open_now = max(self.open_now - 1, 0)
        await super().close()


def test_a_runtime_that_is_away_leaves_no_other_one_open(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        former, current = FailingRuntime(host.programs), FailingRuntime(Programs(host.time))
        both = HandoverRuntime(current, [former])
        for away in (current, former):
            away.away = True
            with pytest.raises(EngineError):
                await both.open(lambda _: None)
            assert (former.open_now, current.open_now) == (0, 0)
            away.away = False
        await both.open(lambda _: None)
        assert (former.open_now, current.open_now) == (1, 1)
        await both.close()

    played(tmp_path, story)


async def test_an_automatic_runtime_stays_while_it_has_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.05)
    bound = {"here": LocationSettings("host", runtime=AUTO, dataplane="builtin")}
    settings = Settings("acme", (), tmp_path, locations=bound, podman=PodmanSettings(tmp_path / "no.sock"))
    assert runtime_of(settings, "here") == "process", "nothing is in use, and Podman does not answer"
    replica = tmp_path / "host" / "here" / "podman" / "shop" / "web" / "web-x"
    replica.mkdir(parents=True)
    assert runtime_of(settings, "here") == "podman"

    records = Records.open(tmp_path / FILE)
    engine = HostPlugin().make(EngineContext(LocationRecords(records, "here"), settings, SystemClock(), vault({})))
    for _ in range(2):
        with pytest.raises(EngineError) as raised:
            await engine.open()
        assert raised.value.reason is Reason.RUNTIME_UNAVAILABLE
    await engine.close()
    records.close()
    replica.rmdir()
    assert runtime_of(settings, "here") == "process"


def test_containers_of_a_former_runtime_follow_the_firewall_and_find_replicas_by_name(tmp_path: Path) -> None:
    class NetworkRuntime(FakeRuntime):
        def __init__(self) -> None:
            super().__init__(Programs(QuickClock()))
            self.seen: list[str] = []

        def prepare(self, wanted: WorkloadSpec) -> None:
            self.seen.append(f"firewall of {wanted.key.name}")

        def publish(self, key: Key, ready: Mapping[str, Mapping[int, str]]) -> None:
            self.seen.append(f"{key.name}: {sorted(ready)}")

        def take_events(self) -> list[tuple[Reason, str]]:
            return [(Reason.FIREWALL_RESTORED, str(len(self.seen)))]

    current, former = NetworkRuntime(), NetworkRuntime()
    both = HandoverRuntime(current, [former])
    both.prepare(wanted())
    both.publish(KEY, {"r": {80: "10.0.0.2:80"}})
    assert current.seen == former.seen == ["firewall of api", "api: ['r']"]
    assert [message for _, message in both.take_events()] == ["2", "2"]
