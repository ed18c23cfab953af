"""What the engine remembers of a workload's versions: the newest, those that still run, and when each was made."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.times import format_iso_time
from tests.engines.host.kit import WEB, HostHarness, played


def test_templates_of_versions_that_run_nowhere_are_dropped(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        gc.collect()
        before = sum(isinstance(get_object, ReplicaTemplate) for get_object in gc.get_objects())
        for version in range(1, 11):
            await host.apply(version)
        gc.collect()
        assert sum(isinstance(get_object, ReplicaTemplate) for get_object in gc.get_objects()) - before <= 3

    played(tmp_path, story)


def test_a_replica_of_an_old_version_starts_again_while_a_newer_one_fails(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.apply(1)
        await host.ask(2, "broken")
        await host.time.advance(30.0)
        [old] = [
            container_id
            for container_id in host.programs.places()
            if host.programs.running[container_id].launch.version == 1
        ]
        host.programs.end(old, 1)
        await host.time.advance(30.0)
        assert [host.programs.running[container_id].launch.version for container_id in host.programs.places()] == [1]

    played(tmp_path, story)


def test_a_version_keeps_the_time_at_which_it_was_made(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        created = format_iso_time(host.time.now())
        await host.apply(1)
        await host.time.advance(100.0)
        await host.apply(1, suspend=True)
        assert [version.created for version in host.versions()] == [created]
        await host.restart()
        await host.record()
        assert [version.created for version in host.versions()] == [created]
        await host.time.advance(100.0)
        await host.apply(1)
        assert [version.created for version in host.versions()] == [created]
        later = format_iso_time(host.time.now())
        await host.apply(2)
        assert [(version.workload, version.created) for version in host.versions()] == [(2, later)]

    played(tmp_path, story)


def test_a_version_has_a_time_after_an_adoption_without_replica_files(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.apply(1)
        [record] = host.records.applied.get(WEB)
        host.records.applied.update_seen(record.key, "here", record.health, b"{}")
        shutil.rmtree(tmp_path / "here" / "replicas")
        await host.restart()
        await host.record()
        assert [bool(each.created) for each in host.versions()] == [True]

    played(tmp_path, story)
