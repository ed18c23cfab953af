"""Tags of workloads with supportDynamicTags on a cluster: one that moves is a rollout, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.images import refresh
from reconciler.engines.protocol import Result
from reconciler.reasons import Reason
from reconciler.settings import ImageSettings
from tests.engines.kubernetes.engine_kit import NAME, SPACE, ClusterHarness, change_body, make_step
from tests.kubernetes.api_server import fake_api_server
from tests.support.registry import FakeRegistry, digest_of, manifest

MARK = "reconciler.dev/moved-tags"


class TagHarness(ClusterHarness):
    """The engine on a fake cluster, with a registry that has ``team/app:1``."""

    registry: FakeRegistry

    def start_registry(self) -> None:
        """Let the registry answer."""
        self.registry = FakeRegistry()
        self.do(self.registry.__aenter__())
        self.push("one")
        self.images = ImageSettings(insecure=(self.registry.host,), allowed=(f"{self.registry.host}/*",))

    def push(self, mark: str) -> None:
        """Let the tag mean another image."""
        self.registry.push("team/app", "1", manifest(mark))

    def apply_app(self, version: int = 1, tag: str = "1", *, dynamic: bool = True) -> None:
        """Apply a workload that follows its tag."""
        body = change_body(image=f"{self.registry.host}/team/app:{tag}")
        body["spec"]["supportDynamicTags"] = dynamic
        [outcome] = self.apply(make_step(body, version)).values()
        assert outcome.result is Result.APPLIED, outcome.message

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
    for name, seconds in (("TICK_SECONDS", 0.02), ("FIRST", 0.02), ("SHORTEST", 0.05), ("LONGEST", 0.1)):
        monkeypatch.setattr(refresh, name, seconds)
    with tags_on_fake(tmp_path) as harness:
        yield harness


@contextmanager
def tags_on_fake(path: Path) -> Iterator[TagHarness]:
    with fake_api_server(path / "cluster") as server:
        server.run_controllers()
        harness = TagHarness(path / "engine", server)
        harness.start_registry()
        harness.begin_anew()
        try:
            yield harness
        finally:
            harness.do(harness.engine.close())
            harness.do(harness.registry.__aexit__(None, None, None))
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
