"""Tags of images that move, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.images import refresh
from reconciler.engines.protocol import Result
from reconciler.reasons import Reason
from reconciler.settings import ImageSettings
from tests.engines.kubernetes.engine_kit import change_body, make_step
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.real_harness import RealHarness
from tests.support.registry import FakeRegistry, manifest

pytestmark = pytest.mark.cluster


class TagHarness(RealHarness):
    """The engine beside a registry that has ``team/app:1``."""

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

    def apply_app(self) -> None:
        """Apply a workload that follows its tag."""
        body: dict[str, Any] = change_body(image=f"{self.registry.host}/team/app:1")
        body["spec"]["supportDynamicTags"] = True
        [outcome] = self.apply(make_step(body)).values()
        assert outcome.result is Result.APPLIED, outcome.message

    def list_pods(self) -> set[str]:
        """The uids of the pods."""
        return set(self.kubectl("get", "pods", "--output", "jsonpath={.items[*].metadata.uid}").split())

    def read_notes(self) -> str:
        """The digests that the Deployment notes for its tags."""
        return self.kubectl("get", "deployments", "--output", "jsonpath={..metadata.annotations.reconciler\\.dev/tags}")


@pytest.fixture
def harness(
    cluster: Cluster, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TagHarness]:
    assert kubelet
    for name, seconds in (("TICK_SECONDS", 0.02), ("FIRST", 0.02), ("SHORTEST", 0.05), ("LONGEST", 0.1)):
        monkeypatch.setattr(refresh, name, seconds)
    harness = TagHarness(tmp_path / "engine", cluster, "tags-")
    harness.start_registry()
    harness.begin_anew()
    try:
        yield harness
    finally:
        harness.do(harness.engine.close())
        harness.do(harness.registry.__aexit__(None, None, None))
        harness.close()
        cluster.api.delete(f"/api/v1/namespaces/{harness.space}")


def test_a_moved_tag_is_a_rollout_and_a_restart_of_the_daemon_is_none(harness: TagHarness) -> None:
    harness.apply_app()
    harness.until(harness.read_notes, "the tag is known")
    harness.wait_for_health()
    before, notes = harness.list_pods(), harness.read_notes()
    harness.begin_anew()
    harness.apply_app()
    assert harness.list_pods() == before
    harness.push("two")
    harness.until(lambda: harness.read_notes() != notes, "the moved tag is known")
    harness.until(lambda: not before & harness.list_pods(), "its pods are replaced")
    harness.wait_for_health()
    assert [event.reason for event in harness.engine.news()].count(Reason.IMAGE_CHANGED) == 1
    assert harness.see_web().digest == "digest-1"
