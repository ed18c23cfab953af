"""A step ends with digest, version and health; the state of a workload is derived by the observation that follows."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.engines.protocol import SupportsWatch
from reconciler.model.key import Key
from reconciler.times import format_iso_time
from tests.engines.host.kit import WEB, HostHarness, played
from tests.support.plans import step


def test_a_step_returns_the_health_and_leaves_the_state_as_it_is_recorded(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.apply(1)
        [before] = host.records.applied.get(WEB)
        again = msgspec.structs.replace(step(WEB, version=1, engine="host"), body=before.body, digest=before.digest)
        outcome = await host.engine.perform(again)
        [seen] = [each for each in await host.engine.observe() if str(each.key) == WEB]
        assert outcome.seen is not None
        assert outcome.seen == msgspec.structs.replace(seen, state=b"")
        await host.ask(2)
        [after] = host.records.applied.get(WEB)
        assert (after.version, after.state) == (2, before.state)
        assert after.health is not before.health, "what waits for it must not begin before it is healthy again"

    played(tmp_path, story)


def test_some_workloads_are_observed_as_all_are(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.apply(1)
        engine = host.engine
        assert isinstance(engine, SupportsWatch)
        assert await engine.observe_some({Key.parse(WEB)}) == await engine.observe()
        assert await engine.observe_some({Key.parse("workload/shop/none")}) == []

    played(tmp_path, story)


def test_a_version_has_the_time_of_its_step_if_the_daemon_ends_before_an_observation(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        begun = format_iso_time(host.time.now())
        await host.ask(1)
        await host.time.advance(100.0)
        await host.restart()
        await host.record()
        assert [version.created for version in host.versions()] == [begun]

    played(tmp_path, story)
