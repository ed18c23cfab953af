"""Tags of images that move, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.reasons import Reason
from tests.engines.kubernetes.tag_kit import RegistryHarness, shorten_waits
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.real_harness import RealHarness

pytestmark = pytest.mark.cluster


class TagHarness(RegistryHarness, RealHarness):
    """The engine on a real cluster."""

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
    shorten_waits(monkeypatch)
    harness = TagHarness(tmp_path / "engine", cluster, "tags-")
    harness.start_registry()
    try:
        yield harness
    finally:
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
