"""Tags of workloads with supportDynamicTags on a cluster: one that moves is a rollout, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.reasons import Reason
from tests.engines.kubernetes.engine_kit import NAME, SPACE, ClusterHarness
from tests.engines.kubernetes.tag_kit import RegistryHarness, shorten_waits
from tests.kubernetes.api_server import fake_api_server
from tests.support.registry import digest_of, manifest

MARK = "reconciler.dev/moved-tags"


class TagHarness(RegistryHarness, ClusterHarness):
    """The engine on a fake cluster."""

    def deployment(self) -> dict[str, Any]:
        """The object that runs the workload."""
        return self.server.object("Deployment", NAME, SPACE)

    def mark(self) -> str:
        """The mark of the pods for moved tags."""
        annotations = self.deployment()["spec"]["template"]["metadata"]["annotations"]
        return str(annotations.get(MARK, ""))

    def knows(self, mark: str) -> bool:
        """Whether the object has the digest of the image that was pushed with ``mark``."""
        notes = self.deployment()["metadata"]["annotations"].get("reconciler.dev/tags", "")
        return digest_of(manifest(mark)) in notes

    def pods(self) -> list[str]:
        """The uids of the pods."""
        return sorted(pod["metadata"]["uid"] for pod in self.server.objects("Pod", SPACE))


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TagHarness]:
    shorten_waits(monkeypatch)
    with tags_on_fake(tmp_path) as harness:
        yield harness


@contextmanager
def tags_on_fake(path: Path) -> Iterator[TagHarness]:
    with fake_api_server(path / "cluster") as server:
        server.run_controllers()
        harness = TagHarness(path / "engine", server)
        harness.start_registry()
        try:
            yield harness
        finally:
            harness.close()


def start(harness: TagHarness) -> list[str]:
    """Apply the workload, and return its pods once the tag is known."""
    harness.apply_app()
    harness.until(lambda: harness.knows("one"), "the tag is known")
    harness.wait_for_health()
    return harness.pods()


def test_a_first_answer_restarts_nothing(harness: TagHarness) -> None:
    before = start(harness)
    harness.rest(0.5)
    assert (harness.pods(), harness.mark()) == (before, "")
    assert harness.see_web().digest == "digest-1"


def test_a_moved_tag_is_a_rollout_of_the_same_version(harness: TagHarness) -> None:
    before = start(harness)
    harness.engine.news()
    harness.push("two")
    harness.until(lambda: harness.knows("two"), "the moved tag is known")
    harness.wait_for_health()
    assert harness.mark() == "1"
    assert not set(harness.pods()) & set(before)
    assert [event.reason for event in harness.engine.news()].count(Reason.IMAGE_CHANGED) == 1
    assert harness.see_web().digest == "digest-1"
    harness.server.clear_requests()
    harness.rest(0.5)
    assert harness.writes() == []


def test_a_restart_of_the_daemon_restarts_nothing_and_follows_on(harness: TagHarness) -> None:
    start(harness)
    harness.push("two")
    harness.until(lambda: harness.knows("two"), "the moved tag is known")
    harness.wait_for_health()
    before = harness.pods()
    harness.begin_anew()
    harness.apply_app()
    harness.rest(0.5)
    assert (harness.pods(), harness.mark()) == (before, "1")
    harness.push("three")
    harness.until(lambda: harness.mark() == "2", "the tag that moved since is followed")


def test_what_moved_while_no_daemon_ran_is_a_rollout(harness: TagHarness) -> None:
    start(harness)
    harness.do(harness.engine.close())
    harness.push("two")
    harness.begin_anew()
    harness.until(lambda: harness.mark() == "1", "the tag that moved is noticed")


def test_a_registry_that_fails_changes_nothing_and_is_an_event(harness: TagHarness) -> None:
    before = start(harness)
    harness.registry.delete("team/app", "1")
    reasons: list[Reason] = []

    def is_reported() -> bool:
        reasons.extend(event.reason for event in harness.engine.news())
        return Reason.IMAGE_PULL_FAILED in reasons

    harness.until(is_reported, "the failure is an event")
    assert (harness.pods(), harness.mark()) == (before, "")


def test_a_workload_that_follows_no_tag_asks_no_registry(harness: TagHarness) -> None:
    harness.apply_app(dynamic=False)
    harness.rest(0.5)
    assert harness.registry.asked == []
